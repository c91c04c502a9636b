//! Detection of the revisions that a server speaks, from its answer to `server/discover`
//! (2026-07-28, basic/versioning).

use bytes::{Bytes, BytesMut};
use weir_core::log_text::sanitize_text;
use weir_core::upstream::{DeclaredExtension, ListKind, ListKinds, ServerDescription};
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, Revision, error_code, meta, scan};

use crate::extensions::{self, APPS, declared_extensions};

/// The characters of a server's versions that a text for operators has.
const MAX_VERSION_LIST: usize = 200;

/// The outcome of a probe.
#[derive(Clone, Debug)]
pub enum ProbeOutcome {
    /// It serves requests without a session.
    Modern(Box<DiscoveredServer>),
    /// It wants `initialize`; this revision is to be offered.
    Legacy(Revision),
    /// It names its revisions, and weir has no revision of them.
    NoCommonRevision(Vec<String>),
}

/// A modern server as it describes itself.
#[derive(Clone, Debug)]
pub struct DiscoveredServer {
    /// The revision to speak.
    pub revision: Revision,
    /// The server's description of itself; absent if it refused the probe with a modern error.
    pub about: Option<ServerDescription>,
}

/// Reads the outcome of a probe: the result or error object of its answer, or no value for silence
/// and for an answer that is not JSON-RPC.
///
/// Only the three codes that exist for it prove a modern server. Any other answer means a legacy
/// server: those answer an unknown request before `initialize` as they like.
#[must_use]
pub fn judge_probe(outcome: Option<&Result<Bytes, Bytes>>) -> ProbeOutcome {
    match outcome {
        Some(Ok(result)) => read_discover_result(result),
        Some(Err(error)) => match ErrorObject::parse(error) {
            Ok(error) if error.code == error_code::UNSUPPORTED_PROTOCOL_VERSION => {
                let data = error.data.unwrap_or_default();
                let supported = scan::find(&data, "supported")
                    .map(|range| texts(&data[range]))
                    .unwrap_or_default();
                choose(supported, || None)
            }
            Ok(error) if is_modern_error(error.code) => modern(None),
            _ => ProbeOutcome::Legacy(Revision::NEWEST_LEGACY),
        },
        None => ProbeOutcome::Legacy(Revision::NEWEST_LEGACY),
    }
}

/// Reads a `DiscoverResult`.
#[must_use]
pub fn read_discover_result(result: &Bytes) -> ProbeOutcome {
    let Some(versions) = scan::find(result, "supportedVersions") else {
        // A server that answers every method with some result is not a modern one.
        return ProbeOutcome::Legacy(Revision::NEWEST_LEGACY);
    };
    choose(texts(&result[versions]), || {
        let info = scan::find(result, "_meta").and_then(|range| {
            let meta = result.slice(range);
            scan::find(&meta, meta::SERVER_INFO).map(|at| meta.slice(at))
        });
        Some(ServerDescription {
            tasks: has_extension(result),
            extensions: extensions(result),
            ..about(result, info)
        })
    })
}

/// Returns the revision to offer after a server has refused `initialize` with an error that has
/// this data: the newest legacy one that it lists, unless that is the one `offered`. A server is to
/// answer with another version, but some refuse as an example of the specification does
/// (2025-11-25, Lifecycle, "Error Handling").
#[must_use]
pub fn revision_to_offer_instead(data: &[u8], offered: Revision) -> Option<Revision> {
    let listed = ["supported", "supportedVersions"]
        .iter()
        .find_map(|name| scan::find(data, name))?;
    let newest = texts(&data[listed])
        .iter()
        .filter_map(|text| Revision::parse(text))
        .filter(|revision| !revision.is_modern())
        .max();
    newest.filter(|revision| *revision != offered)
}

/// Reads an `InitializeResult`: the revision, if weir has it, and the server's description of
/// itself.
#[must_use]
pub fn read_initialize_result(result: &Bytes) -> (Option<Revision>, ServerDescription) {
    let version =
        scan::find(result, "protocolVersion").and_then(|range| scan::string(&result[range]));
    let revision = version
        .and_then(|text| Revision::parse(&text))
        .filter(|revision| !revision.is_modern());
    let info = scan::find(result, "serverInfo").map(|range| result.slice(range));
    (revision, about(result, info))
}

/// The version of an `InitializeResult`, as a text for operators.
#[must_use]
pub fn version_text(result: &[u8]) -> String {
    let version = scan::find(result, "protocolVersion").map(|range| &result[range]);
    match version.map(|raw| scan::string(raw).ok_or(raw)) {
        None => "none".to_owned(),
        Some(Ok(version)) => listed_versions(&[version.into_owned()]),
        Some(Err(raw)) => listed_versions(&[String::from_utf8_lossy(raw).into_owned()]),
    }
}

/// The versions that a server names, as a text for operators.
#[must_use]
pub fn listed_versions(versions: &[String]) -> String {
    let list = sanitize_text(&versions.join(", "), MAX_VERSION_LIST);
    if list.is_empty() {
        "none".to_owned()
    } else {
        list
    }
}

/// The answer to `initialize` as far as [`read_initialize_result`] reads it.
#[must_use]
pub fn initialize_result(revision: Revision, about: &ServerDescription) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    result.string("protocolVersion", revision.as_str());
    if let Some(raw) = &about.capabilities {
        result.raw("capabilities", raw);
    }
    if let Some(raw) = &about.server_info {
        result.raw("serverInfo", raw);
    }
    if let Some(text) = &about.instructions {
        result.string("instructions", text);
    }
    result.end();
    out.freeze()
}

/// True for the codes that only a modern server sends in answer to a probe.
#[must_use]
pub const fn is_modern_error(number: i64) -> bool {
    matches!(
        number,
        error_code::HEADER_MISMATCH
            | error_code::MISSING_REQUIRED_CLIENT_CAPABILITY
            | error_code::UNSUPPORTED_PROTOCOL_VERSION
    )
}

fn modern(about: Option<ServerDescription>) -> ProbeOutcome {
    ProbeOutcome::Modern(Box::new(DiscoveredServer {
        revision: Revision::MODERN,
        about,
    }))
}

/// Picks the newest revision both have. A server that lists a legacy one offers `initialize` for
/// it.
fn choose(
    supported: Vec<String>,
    about: impl FnOnce() -> Option<ServerDescription>,
) -> ProbeOutcome {
    let newest = supported
        .iter()
        .filter_map(|text| Revision::parse(text))
        .max();
    match newest {
        Some(revision) if revision.is_modern() => {
            ProbeOutcome::Modern(Box::new(DiscoveredServer {
                revision,
                about: about(),
            }))
        }
        Some(revision) => ProbeOutcome::Legacy(revision),
        None => ProbeOutcome::NoCommonRevision(supported),
    }
}

fn about(result: &Bytes, server_info: Option<Bytes>) -> ServerDescription {
    let capabilities = scan::find(result, "capabilities").map(|range| result.slice(range));
    let (mut offers, mut pushes) = (ListKinds::default(), ListKinds::default());
    let capability = |name: &str| {
        capabilities
            .as_ref()
            .and_then(|all| scan::find(all, name).map(|at| all.slice(at)))
    };
    let says = |of: &Bytes, name: &str| scan::find(of, name).is_some_and(|at| &of[at] == b"true");
    for kind in ListKind::ALL {
        let Some(own) = capability(capability_of(kind)) else {
            continue;
        };
        offers = offers.with(kind);
        if says(&own, "listChanged") {
            pushes = pushes.with(kind);
        }
    }
    ServerDescription {
        server_info,
        instructions: scan::find(result, "instructions")
            .and_then(|range| scan::string(&result[range]).map(Into::into)),
        offers,
        notifies_of: pushes,
        subscribes: capability("resources").is_some_and(|own| says(&own, "subscribe")),
        completes: capability("completions").is_some(),
        apps: capabilities
            .as_ref()
            .is_some_and(|all| within(all, &["extensions", APPS])),
        extensions: Vec::new(),
        tasks: capabilities
            .as_ref()
            .is_some_and(|all| within(all, &["tasks", "requests", "tools", "call"])),
        capabilities,
    }
}

/// True if a modern server has the tasks extension. The member of old does not count for a modern
/// server, nor the extension for a legacy one (SEP-2663).
fn has_extension(result: &[u8]) -> bool {
    within(result, &["capabilities", "extensions", extensions::TASKS])
}

/// The extensions of a modern server, except those that weir understands.
fn extensions(result: &Bytes) -> Vec<DeclaredExtension> {
    let capabilities = scan::find(result, "capabilities")
        .map(|at| result.slice(at))
        .unwrap_or_default();
    declared_extensions(&capabilities)
}

/// True if there is an object at the end of this path.
fn within(object: &[u8], path: &[&str]) -> bool {
    match path {
        [] => scan::is_object(object),
        [first, rest @ ..] => {
            scan::is_object(object)
                && scan::find(object, first).is_some_and(|at| within(&object[at], rest))
        }
    }
}

/// The `ServerCapabilities` member of a list.
const fn capability_of(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "tools",
        ListKind::Prompts => "prompts",
        ListKind::Resources | ListKind::Templates => "resources",
    }
}

fn texts(array: &[u8]) -> Vec<String> {
    scan::elements(array)
        .filter_map(|range| scan::string(&array[range]).map(Into::into))
        .take(32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Option<Result<Bytes, Bytes>> {
        Some(Err(Bytes::copy_from_slice(text.as_bytes())))
    }

    fn result(text: &str) -> Option<Result<Bytes, Bytes>> {
        Some(Ok(Bytes::copy_from_slice(text.as_bytes())))
    }

    #[test]
    fn versions_of_a_server_are_named_for_operators() {
        for (result, text) in [
            (r#"{"protocolVersion":"2099-01-01"}"#, "2099-01-01"),
            (r#"{"protocolVersion":"a\nb"}"#, "a\u{fffd}b"),
            (r#"{"protocolVersion":5}"#, "5"),
            (r#"{"protocolVersion":""}"#, "none"),
            ("{}", "none"),
        ] {
            assert_eq!(version_text(result.as_bytes()), text, "{result}");
        }
        for (result, text) in [
            (r#"{"supportedVersions":{}}"#, "none"),
            (
                r#"{"supportedVersions":["2098-01-01","2099-01-01"]}"#,
                "2098-01-01, 2099-01-01",
            ),
        ] {
            let found = read_discover_result(&Bytes::from_static(result.as_bytes()));
            let ProbeOutcome::NoCommonRevision(versions) = found else {
                panic!("{result}: {found:?}")
            };
            assert_eq!(listed_versions(&versions), text, "{result}");
        }
    }

    fn word(found: &ProbeOutcome) -> String {
        match found {
            ProbeOutcome::Modern(found) => format!("modern {}", found.revision),
            ProbeOutcome::Legacy(revision) => format!("legacy {revision}"),
            ProbeOutcome::NoCommonRevision(all) => format!("foreign {all:?}"),
        }
    }

    // Proves R068, E17.
    #[test]
    fn probe_table() {
        for (outcome, expected) in [
            (
                result(r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#),
                "modern 2026-07-28",
            ),
            (
                result(r#"{"supportedVersions":["2025-11-25","2026-07-28","2099-01-01"]}"#),
                "modern 2026-07-28",
            ),
            (
                result(r#"{"supportedVersions":["2025-06-18"]}"#),
                "legacy 2025-06-18",
            ),
            (
                result(r#"{"supportedVersions":["2099-01-01"]}"#),
                r#"foreign ["2099-01-01"]"#,
            ),
            (result("{}"), "legacy 2025-11-25"),
            (
                error(r#"{"code":-32020,"message":"m"}"#),
                "modern 2026-07-28",
            ),
            (
                error(r#"{"code":-32021,"message":"m","data":{}}"#),
                "modern 2026-07-28",
            ),
            (
                error(r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#),
                "modern 2026-07-28",
            ),
            (
                error(r#"{"code":-32022,"message":"m","data":{"supported":["2027-01-01"]}}"#),
                r#"foreign ["2027-01-01"]"#,
            ),
            (error(r#"{"code":-32022,"message":"m"}"#), "foreign []"),
            (
                error(r#"{"code":-32601,"message":"m"}"#),
                "legacy 2025-11-25",
            ),
            (
                error(r#"{"code":-32602,"message":"m"}"#),
                "legacy 2025-11-25",
            ),
            (
                error(r#"{"code":-32600,"message":"m"}"#),
                "legacy 2025-11-25",
            ),
            (
                error(r#"{"code":-32000,"message":"m"}"#),
                "legacy 2025-11-25",
            ),
            (error(r#"{"message":"m"}"#), "legacy 2025-11-25"),
            (None, "legacy 2025-11-25"),
        ] {
            assert_eq!(
                word(&judge_probe(outcome.as_ref())),
                expected,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn newest_listed_revision_is_offered_after_a_refused_initialize() {
        let instead = |data: &str| {
            let revision = revision_to_offer_instead(data.as_bytes(), Revision::V2025_11_25);
            revision.map(Revision::as_str)
        };
        for (data, expected) in [
            (
                r#"{"supported":["2024-11-05"],"requested":"2025-11-25"}"#,
                Some("2024-11-05"),
            ),
            (
                r#"{"supported":["2024-11-05","2025-06-18","2026-07-28"]}"#,
                Some("2025-06-18"),
            ),
            (
                r#"{"supportedVersions":["2025-03-26"]}"#,
                Some("2025-03-26"),
            ),
            (r#"{"supported":["2025-11-25"]}"#, None),
            (r#"{"supported":["2026-07-28"]}"#, None),
            (r#"{"supported":["1.0"]}"#, None),
            (r#"{"supported":"2024-11-05"}"#, None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(instead(data), expected, "{data}");
        }
    }

    #[test]
    fn server_description_is_read() {
        let modern = br#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"a\nb",
            "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n"}}}"#;
        let ProbeOutcome::Modern(found) = read_discover_result(&Bytes::from_static(modern)) else {
            panic!("a modern server")
        };
        let about = found.about.unwrap_or_default();
        assert!(about.offers.has(ListKind::Tools) && about.notifies_of.has(ListKind::Tools));
        assert!(!about.offers.has(ListKind::Prompts));
        assert_eq!(about.instructions.as_deref(), Some("a\nb"));
        assert_eq!(about.server_info.as_deref(), Some(&br#"{"name":"n"}"#[..]));

        let legacy = br#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"l"}}"#;
        let (revision, about) = read_initialize_result(&Bytes::from_static(legacy));
        assert_eq!(revision, Some(Revision::V2025_03_26));
        assert!(about.offers.has(ListKind::Tools) && about.notifies_of.is_empty());
        let tasks = br#"{"tasks":{"requests":{"tools":{"call":{}}}},"extensions":{}}"#;
        let told = |capabilities: &[u8], version: &str| {
            let capabilities = String::from_utf8_lossy(capabilities);
            let both = format!(
                r#"{{"protocolVersion":"{version}","supportedVersions":["{version}"],"capabilities":{capabilities}}}"#
            );
            Bytes::from(both)
        };
        let extension = br#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        for (capabilities, legacy, modern) in [
            (&tasks[..], true, false),
            (extension, false, true),
            (b"{}", false, false),
        ] {
            assert_eq!(
                read_initialize_result(&told(capabilities, "2025-11-25"))
                    .1
                    .tasks,
                legacy,
                "R228"
            );
            let ProbeOutcome::Modern(found) =
                read_discover_result(&told(capabilities, "2026-07-28"))
            else {
                panic!("a modern server")
            };
            assert_eq!(found.about.unwrap_or_default().tasks, modern, "R228");
        }
        let odd = Bytes::from_static(br#"{"protocolVersion":"2026-07-28","capabilities":{}}"#);
        assert_eq!(
            read_initialize_result(&odd).0,
            None,
            "the modern revision has no initialize"
        );
    }
}
