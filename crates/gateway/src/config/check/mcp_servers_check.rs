//! `mcpServers`: the map that MCP clients use, accepted in their format.

use weir_core::names::UpstreamId;

use super::super::UpstreamPlan;
use super::super::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use super::super::raw::{OrderedMap, RawMcpServer, RawProtocol, RawUpstream};
use super::config_defaults::ConfigDefaults;
use super::{ConfigPart, upstreams_check};

pub(super) fn check(
    raw: Option<OrderedMap<RawMcpServer>>,
    defaults: &ConfigDefaults,
    standing: &[UpstreamPlan],
    part: &mut ConfigPart,
    report: &mut ConfigReport,
) {
    let mut keys: Vec<(UpstreamId, String)> = Vec::new();
    for (key, raw) in raw.unwrap_or_default().0 {
        let path = ConfigPath::at("mcpServers").key(&key);
        if raw.disabled == Some(true) {
            report.add(ConfigProblem::note(
                path,
                "is left out, because it is `disabled`",
            ));
            continue;
        }
        let slug = upstream_slug(&key);
        let Ok(id) = UpstreamId::new(&slug) else {
            // A slug always fits the grammar of ids. This branch covers a later change of one of
            // the two.
            report.add(ConfigProblem::error(
                path,
                format!("`{slug}` is not an upstream id"),
            ));
            continue;
        };
        if let Some((_, other)) = keys.iter().find(|(other, _)| *other == id) {
            let message = format!("becomes the upstream id `{id}`, and so does `{other}`");
            report.add(ConfigProblem::error(path, message).hint("rename one of them"));
            continue;
        }
        if upstreams_check::is_id_taken(&id, standing, part) {
            report.add(
                ConfigProblem::error(path, format!("another upstream has the id `{id}`"))
                    .hint("rename one of them"),
            );
            continue;
        }
        if slug != key {
            report.add(ConfigProblem::warning(
                path.clone(),
                format!("becomes the upstream id `{id}`"),
            ));
        }
        check_type(&raw, &path, report);
        keys.push((id.clone(), key));
        let raw = RawUpstream {
            protocol: (raw.r#type.as_deref() == Some("sse") && raw.url.is_some())
                .then_some(RawProtocol::Sse),
            url: raw.url,
            command: raw.command,
            args: raw.args,
            env: raw.env,
            cwd: raw.cwd,
            headers: raw.headers,
            ..RawUpstream::default()
        };
        part.upstreams.extend(upstreams_check::check_upstream(
            id, raw, defaults, &path, report,
        ));
    }
}

fn check_type(raw: &RawMcpServer, path: &ConfigPath, report: &mut ConfigReport) {
    let path = path.key("type");
    match raw.r#type.as_deref() {
        None => {}
        Some("stdio") if raw.command.is_some() => {}
        Some("http" | "streamable-http" | "streamableHttp" | "sse") if raw.url.is_some() => {}
        Some("stdio") => report.add(ConfigProblem::error(path, "`stdio` needs a `command`")),
        Some("http" | "streamable-http" | "streamableHttp" | "sse") => {
            report.add(ConfigProblem::error(
                path,
                "a server over HTTP needs a `url`",
            ));
        }
        Some(other) => report.add(
            ConfigProblem::error(path, format!("`{other}` is not a known value"))
                .hint("one of: stdio, http, streamable-http, sse"),
        ),
    }
}

/// Converts any text to an upstream id: lower case, other characters become `-`, at most 24, a
/// letter first.
pub(crate) fn upstream_slug(key: &str) -> String {
    let mut slug = String::new();
    for c in key.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    if !slug.starts_with(|c: char| c.is_ascii_lowercase()) {
        slug.insert_str(0, "s-");
    }
    slug.truncate(24);
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slugs_read_like_their_keys() {
        let table = [
            ("files", "files"),
            ("My Server!", "my-server"),
            ("@scope/server_v2", "scope-server-v2"),
            ("1password", "s-1password"),
            ("日本", "s"),
            ("", "s"),
            (
                "a-very-long-name-of-a-server-for-files",
                "a-very-long-name-of-a-se",
            ),
        ];
        for (key, wanted) in table {
            assert_eq!(upstream_slug(key), wanted);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn every_slug_is_an_upstream_id(key in ".{0,40}") {
            prop_assert!(UpstreamId::new(&upstream_slug(&key)).is_ok());
        }
    }
}
