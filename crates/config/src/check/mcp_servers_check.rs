//! `mcpServers`: the map that MCP clients use, accepted in their format.

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{OrderedMap, RawMcpServer, RawProtocol, RawUpstream};
use weir_config_file::upstream_slug::upstream_slug;
use weir_core::names::UpstreamId;

use crate::check::config_defaults::ConfigDefaults;
use crate::check::upstreams_check;
use crate::checked_config::UpstreamPlan;
use crate::config_part::ConfigPart;

pub(super) fn check(
    raw: Option<OrderedMap<RawMcpServer>>,
    defaults: &ConfigDefaults,
    earlier: &[UpstreamPlan],
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
        if upstreams_check::is_id_taken(&id, earlier, part) {
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
