//! The client capabilities that weir forwards to a server, and their form towards that server.
//!
//! A server sees exactly the capabilities that weir can forward for this pair of revisions, and
//! never more than the client declared. A capability declared in excess makes servers ask questions
//! that get no answer.

use bytes::{Bytes, BytesMut};
use weir_core::CapabilityClass;
use weir_core::upstream::DeclaredExtension;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;
use weir_wire::write::ObjectWriter;

use crate::extensions::{self, APPS, declared_extensions};

/// The capabilities forwarded to a modern server: its `input_required` passes to the client and
/// comes back.
pub const TO_MODERN: CapabilityClass = CapabilityClass::SAMPLING
    .with(CapabilityClass::SAMPLING_TOOLS)
    .with(CapabilityClass::ELICITATION_FORM)
    .with(CapabilityClass::ELICITATION_URL)
    .with(CapabilityClass::ROOTS);

/// The extensions declared to a modern server: that its tasks are accepted, and if its interfaces
/// are shown.
pub const EXTENSIONS: CapabilityClass = CapabilityClass::TASKS.with(CapabilityClass::UI);

/// The settings of a client of MCP Apps: there is one kind of interface so far.
const SHOWS: &[u8] = br#"{"mimeTypes":["text/html;profile=mcp-app"]}"#;

/// The capabilities forwarded to a legacy server: its requests in the middle of a call pass to the
/// client, as far as the client's revision has them.
pub const TO_LEGACY: CapabilityClass = TO_MODERN;

/// The `ClientCapabilities` object of a client of `class` for a modern server, with the forwarded
/// part of the class. `theirs` are the extensions that the server has. The client's own JSON
/// (`raw`) is used if it declares the capability, so that settings inside reach the server.
#[must_use]
pub fn to_modern(
    class: CapabilityClass,
    raw: Option<&[u8]>,
    theirs: &[DeclaredExtension],
) -> Bytes {
    let carried = class.cut(TO_MODERN.with(EXTENSIONS));
    // Extensions that weir does not understand are negotiated between client and server. They pass
    // by their identifiers if both have them.
    let raw_extensions = raw
        .filter(|_| !theirs.is_empty())
        .map(Bytes::copy_from_slice);
    let mut own = raw_extensions
        .map(|raw| declared_extensions(&raw))
        .unwrap_or_default();
    own.retain(|(name, _)| theirs.iter().any(|(their, _)| their == name));
    if carried == CapabilityClass::BASE && own.is_empty() {
        return EMPTY;
    }
    let mut out = BytesMut::with_capacity(64);
    let mut object = ObjectWriter::new(&mut out);
    for (name, any_of, own) in capability_members(carried) {
        if !any_of {
            continue;
        }
        let declared = raw.and_then(|raw| scan::find(raw, name).map(|range| &raw[range]));
        match declared.filter(|value| scan::is_object(value)) {
            Some(declared) => object.raw(name, &remove_unforwarded(carried, name, declared)),
            None => object.raw(name, own),
        };
    }
    if carried.cut(EXTENSIONS) != CapabilityClass::BASE || !own.is_empty() {
        let shows = raw
            .and_then(|raw| within(raw, &["extensions", APPS]))
            .filter(|shows| scan::is_object(shows));
        object.with("extensions", |out| {
            extensions(carried, shows.unwrap_or(SHOWS), &own, out)
        });
    }
    object.end();
    out.freeze()
}

/// The client's JSON of the capability `name` without the modes that are not forwarded: modes
/// beyond its class, other servers' contexts (weir never asks for them), and notifications of
/// changed roots (a modern server has no such notification).
fn remove_unforwarded(carried: CapabilityClass, name: &str, declared: &[u8]) -> Bytes {
    use CapabilityClass as C;
    let ways: &[(&str, bool)] = match name {
        "sampling" => &[
            ("tools", carried.has(C::SAMPLING_TOOLS)),
            ("context", false),
        ],
        "elicitation" => &[
            ("form", carried.has(C::ELICITATION_FORM)),
            ("url", carried.has(C::ELICITATION_URL)),
        ],
        _ => &[("listChanged", false)],
    };
    let declared = Bytes::copy_from_slice(declared);
    let more = ways
        .iter()
        .filter(|(way, is_carried)| !is_carried && scan::find(&declared, way).is_some());
    let edits = more.fold(ObjectEdits::new(), |edits, (way, _)| edits.remove(*way));
    edits.apply_or_keep(&declared)
}

/// Writes the extensions of a class, and `own` ones; `shows` are the settings of MCP Apps.
fn extensions(class: CapabilityClass, shows: &[u8], own: &[DeclaredExtension], out: &mut BytesMut) {
    let mut object = ObjectWriter::new(out);
    for (name, settings) in own {
        object.raw(name, settings);
    }
    if class.has(CapabilityClass::TASKS) {
        object.raw(extensions::TASKS, b"{}");
    }
    if class.has(CapabilityClass::UI) {
        object.raw(APPS, shows);
    }
    object.end();
}

/// The value at the end of a path.
fn within<'a>(object: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    path.iter().try_fold(object, |object, name| {
        Some(&object[scan::find(object, name)?])
    })
}

/// The capabilities in `initialize` to a legacy server for clients of `class`. If the session
/// belongs to one client (`tells_roots`), its roots are declared with `listChanged`.
#[must_use]
pub fn to_legacy(class: CapabilityClass, tells_roots: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    let mut object = ObjectWriter::new(&mut out);
    for (name, any_of, own) in capability_members(class.cut(TO_LEGACY)) {
        match (name, any_of) {
            (_, false) => {}
            ("roots", true) if tells_roots => drop(object.raw(name, br#"{"listChanged":true}"#)),
            (_, true) => drop(object.raw(name, own)),
        }
    }
    if class.has(CapabilityClass::UI) {
        // Tasks of 2025-11-25 are not the tasks extension.
        object.with("extensions", |out| {
            extensions(CapabilityClass::UI, SHOWS, &[], out)
        });
    }
    object.end();
    out.freeze()
}

const EMPTY: Bytes = Bytes::from_static(b"{}");

/// The capabilities by name: if the class has any part of it, and weir's own JSON for it.
fn capability_members(class: CapabilityClass) -> [(&'static str, bool, &'static [u8]); 3] {
    use CapabilityClass as C;
    let tools = class.has(C::SAMPLING_TOOLS);
    let (form, url) = (
        class.has(C::ELICITATION_FORM),
        class.has(C::ELICITATION_URL),
    );
    let elicitation: &[u8] = match (form, url) {
        (true, true) => br#"{"form":{},"url":{}}"#,
        (false, true) => br#"{"url":{}}"#,
        _ => br#"{"form":{}}"#,
    };
    [
        (
            "sampling",
            class.has(C::SAMPLING) || tools,
            if tools { br#"{"tools":{}}"# } else { b"{}" },
        ),
        ("elicitation", form || url, elicitation),
        ("roots", class.has(C::ROOTS), b"{}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R079.
    #[test]
    fn forwarded_capabilities_keep_the_clients_json() {
        let raw = br#"{"roots":{"x":1},"elicitation":{"form":{"y":2}},"tasks":{}}"#;
        let carried = CapabilityClass::ROOTS.with(CapabilityClass::ELICITATION_FORM);
        let told = to_modern(carried, Some(raw), &[]);
        assert_eq!(told, r#"{"elicitation":{"form":{"y":2}},"roots":{"x":1}}"#);
        let told = to_modern(CapabilityClass::TASKS, Some(raw), &[]);
        assert_eq!(
            told,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
        );
    }

    // Proves R079.
    #[test]
    fn unforwarded_modes_are_removed_from_the_clients_json() {
        let raw = br#"{"elicitation":{"form":{"y":2},"url":{}},"sampling":{"tools":{},"context":{},"z":1},
"roots":{"listChanged":true,"x":1}}"#;
        let class = CapabilityClass::ELICITATION_FORM
            .with(CapabilityClass::SAMPLING)
            .with(CapabilityClass::ROOTS);
        let told = to_modern(class, Some(raw), &[]);
        assert_eq!(
            told,
            r#"{"sampling":{"z":1},"elicitation":{"form":{"y":2}},"roots":{"x":1}}"#
        );
        let url = to_modern(CapabilityClass::ELICITATION_URL, Some(raw), &[]);
        assert_eq!(url, r#"{"elicitation":{"url":{}}}"#);
    }

    // Proves R144.
    #[test]
    fn ui_settings_are_forwarded_to_servers() {
        let own =
            br#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a/b"]},"c/d":{}}}"#;
        let told = |class, raw| String::from_utf8_lossy(&to_modern(class, raw, &[])).into_owned();
        let ui = CapabilityClass::UI;
        assert_eq!(
            told(ui, Some(own)),
            r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a/b"]}}}"#
        );
        let weirs = r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
        assert_eq!(told(ui, None), weirs);
        assert_eq!(to_legacy(ui, true), weirs);
        assert!(
            told(ui.with(CapabilityClass::TASKS), None)
                .contains(r#"{"io.modelcontextprotocol/tasks":{},"io."#)
        );
    }

    #[test]
    fn class_without_client_json_is_written_by_weir() {
        let class = CapabilityClass::SAMPLING_TOOLS
            .with(CapabilityClass::ELICITATION_URL)
            .with(CapabilityClass::ROOTS);
        assert_eq!(
            to_modern(class, None, &[]),
            r#"{"sampling":{"tools":{}},"elicitation":{"url":{}},"roots":{}}"#
        );
        assert_eq!(
            to_modern(CapabilityClass::BASE, Some(br#"{"roots":{}}"#), &[]),
            EMPTY
        );
    }

    // Proves R144.
    #[test]
    fn extensions_pass_by_their_identifiers_where_both_have_them() {
        let raw = br#"{"extensions":{"a/b":{"x":1},"c/d":5,"io.modelcontextprotocol/tasks":{}}}"#;
        let theirs = [("a/b".into(), EMPTY), ("e/f".into(), EMPTY)];
        let told = |class| to_modern(class, Some(raw), &theirs);
        assert_eq!(
            to_modern(CapabilityClass::BASE, Some(raw), &theirs[1..]),
            EMPTY,
            "R080"
        );
        assert_eq!(
            told(CapabilityClass::BASE),
            r#"{"extensions":{"a/b":{"x":1}}}"#
        );
        let tasks = told(CapabilityClass::TASKS);
        assert!(
            tasks
                .starts_with(br#"{"extensions":{"a/b":{"x":1},"io.modelcontextprotocol/tasks":{}"#),
            "{tasks:?}"
        );
    }

    // Proves R079.
    #[test]
    fn legacy_server_gets_only_forwarded_capabilities() {
        let class = CapabilityClass::ROOTS
            .with(CapabilityClass::SAMPLING)
            .with(CapabilityClass::TASKS);
        assert_eq!(
            to_legacy(class, true),
            r#"{"sampling":{},"roots":{"listChanged":true}}"#
        );
        assert_eq!(to_legacy(class, false), r#"{"sampling":{},"roots":{}}"#);
        assert_eq!(to_legacy(CapabilityClass::BASE, true), EMPTY);
        assert_eq!(
            to_legacy(CapabilityClass::ELICITATION_FORM, false),
            r#"{"elicitation":{"form":{}}}"#
        );
    }
}
