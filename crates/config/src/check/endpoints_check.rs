//! `endpoints`.

use std::time::Duration;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{OrOff, OrderedMap, RawEndpoint};
use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::upstream::CallDeadlines;

use crate::check::config_defaults::{self, ConfigDefaults};
use crate::check::{policy_check, toolsets_check};
use crate::config_part::{ConfigPart, EarlierFiles};

/// The deadlines of an endpoint that sets no limit: the upstream's own apply.
const UNBOUNDED: CallDeadlines = CallDeadlines {
    connect: Duration::MAX,
    idle: Duration::MAX,
    hard: Duration::MAX,
    own_silence: None,
};

/// The longest path in bytes. A longer one is a mistake.
const MAX_PATH_BYTES: usize = 128;

/// Checks the endpoints of a file whose upstreams are already in `part`. They may show those and
/// the ones in `earlier`.
pub(super) fn check(
    raw: OrderedMap<RawEndpoint>,
    defaults: &ConfigDefaults,
    earlier: EarlierFiles<'_>,
    part: &mut ConfigPart,
    report: &mut ConfigReport,
) {
    if raw.0.is_empty() {
        report.add(
            ConfigProblem::error(
                ConfigPath::at("endpoints"),
                "is empty: clients could reach no upstream",
            )
            .hint("leave it out for /mcp with all upstreams"),
        );
    }
    let own = raw
        .0
        .iter()
        .filter_map(|(_, raw)| OrOff::section(raw.policy.as_ref()));
    policy_check::read(own, &defaults.folder, &mut part.files);
    for (text, raw) in raw.0 {
        let path = ConfigPath::at("endpoints").key(&text);
        if let Err(message) = check_path_syntax(&text) {
            report.add(ConfigProblem::error(path, message).hint("such as /mcp or /team/files"));
            continue;
        }
        if earlier
            .endpoints
            .iter()
            .any(|other| other.id.as_str() == text)
        {
            report.add(ConfigProblem::error(
                path,
                "another file has an endpoint of this path",
            ));
            continue;
        }
        let upstreams = KnownUpstreams { earlier, part };
        if let Some(endpoint) = check_endpoint(&text, &raw, defaults, upstreams, report) {
            part.endpoint_rules.push(policy_check::endpoint_policy(
                &raw,
                &endpoint,
                &defaults.folder,
                &mut part.files,
                report,
            ));
            part.endpoints.push(endpoint);
        }
    }
}

/// The upstreams that an endpoint of a file may show.
#[derive(Clone, Copy)]
struct KnownUpstreams<'a> {
    earlier: EarlierFiles<'a>,
    /// The part of the endpoint's own file.
    part: &'a ConfigPart,
}

fn check_endpoint(
    text: &str,
    raw: &RawEndpoint,
    defaults: &ConfigDefaults,
    known: KnownUpstreams<'_>,
    report: &mut ConfigReport,
) -> Option<Endpoint> {
    let path = ConfigPath::at("endpoints").key(text);
    let page = config_defaults::page(raw.page.as_ref(), defaults.page, &path.key("page"), report);
    let deadlines = raw.deadlines.as_ref().map(|own| {
        config_defaults::deadlines(Some(own), UNBOUNDED, &path.key("deadlines"), report)
    });
    let mode = mode(raw, defaults, known, &path, report);
    let naming = match &mode {
        Some(EndpointMode::Aggregate { naming, .. }) => naming,
        _ => &defaults.naming,
    };
    let tools = toolsets_check::check(raw.tools.as_ref(), naming, &path, report);
    let mode = mode?;
    let clean = raw.clean.unwrap_or(!mode.is_transparent());
    Some(Endpoint {
        id: EndpointId::new(text),
        mode,
        page,
        deadlines,
        tools,
        clean,
    })
}

fn mode(
    raw: &RawEndpoint,
    defaults: &ConfigDefaults,
    known: KnownUpstreams<'_>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<EndpointMode> {
    match (&raw.upstream, &raw.upstreams) {
        (Some(one), None) => {
            if raw.naming.is_some() {
                let problem = ConfigProblem::error(
                    path.key("naming"),
                    "has no effect here: nothing is renamed",
                );
                report.add(problem.hint("`upstreams: [..]` gives names with a prefix"));
            }
            let id = known.find(one, &path.key("upstream"), report);
            id.map(EndpointMode::Transparent)
        }
        (None, Some(listed)) => {
            let mut upstreams: Vec<UpstreamId> = Vec::new();
            for (n, text) in listed.iter().enumerate() {
                let Some(id) = known.find(text, &path.key("upstreams").key(n), report) else {
                    continue;
                };
                if upstreams.contains(&id) {
                    report.add(ConfigProblem::error(
                        path.key("upstreams").key(n),
                        format!("`{id}` is listed twice"),
                    ));
                } else {
                    upstreams.push(id);
                }
            }
            if listed.is_empty() {
                report.add(ConfigProblem::error(path.key("upstreams"), "is empty"));
            }
            let own = raw.naming.as_ref().and_then(|own| {
                let (base, path) = (&defaults.raw_naming, path.key("naming"));
                config_defaults::naming(Some(own), Some(base), &path, report)
            });
            let (naming, prefix) =
                own.unwrap_or_else(|| (defaults.naming.clone(), defaults.prefix));
            Some(EndpointMode::Aggregate {
                upstreams,
                naming,
                prefix,
            })
        }
        (Some(_), Some(_)) => {
            let problem = ConfigProblem::error(path.clone(), "has both `upstream` and `upstreams`");
            report.add(problem.hint(
                "`upstream` shows one upstream unchanged, `upstreams` shows several in one list",
            ));
            None
        }
        (None, None) => {
            if !report.has_error_under(path) {
                let problem = ConfigProblem::error(path.clone(), "shows no upstream");
                report.add(problem.hint("write { upstreams: [..] } or { upstream: one }"));
            }
            None
        }
    }
}

impl KnownUpstreams<'_> {
    /// Returns the id of an upstream. A missing one is reported.
    fn find(self, text: &str, path: &ConfigPath, report: &mut ConfigReport) -> Option<UpstreamId> {
        let mut ids = self
            .earlier
            .upstreams
            .iter()
            .chain(&self.part.upstreams)
            .map(|plan| &plan.settings.id);
        if let Some(id) = ids.clone().find(|id| id.as_str() == text) {
            return Some(id.clone());
        }
        // An upstream with an error is already reported.
        if !report.has_error_under(&ConfigPath::at("upstreams").key(text)) {
            let names: Vec<&str> = ids.by_ref().map(UpstreamId::as_str).collect();
            let hint = if names.is_empty() {
                "no upstreams are configured".to_owned()
            } else {
                format!("known upstreams: {}", names.join(", "))
            };
            let message = format!("there is no upstream `{text}`");
            report.add(ConfigProblem::error(path.clone(), message).hint(hint));
        }
        None
    }
}

fn check_path_syntax(path: &str) -> Result<(), &'static str> {
    let segments = || path.split('/').skip(1);
    if !path.starts_with('/') {
        Err("must start with /")
    } else if path.len() > MAX_PATH_BYTES {
        Err("is too long for a path")
    } else if path == "/.well-known" || path.starts_with("/.well-known/") {
        Err("is reserved for metadata")
    } else if segments().any(|segment| segment.is_empty() || segment == "." || segment == "..")
        && path != "/"
    {
        Err("has an empty or dotted segment")
    } else if !path
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b))
    {
        Err("may have only letters, digits and /-_.~")
    } else {
        Ok(())
    }
}
