//! `endpoints`.

use std::time::Duration;

use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::upstream::CallDeadlines;

use super::super::raw::{OrOff, Ordered, RawEndpoint};
use super::super::report::{Path, Problem, Report};
use super::Part;
use super::rules::{self, Defaults};
use super::{policy, toolsets};

/// The deadlines of an endpoint that sets no limit: the upstream's own apply.
const UNBOUNDED: CallDeadlines = CallDeadlines {
    connect: Duration::MAX,
    idle: Duration::MAX,
    hard: Duration::MAX,
};

/// The longest path in bytes. A longer one is a mistake.
const LONGEST: usize = 128;

/// Checks the endpoints of a file whose upstreams are already in `part`. They may show those and
/// the ones in `standing`.
pub(super) fn check(
    raw: Ordered<RawEndpoint>,
    defaults: &Defaults,
    standing: &Part,
    part: &mut Part,
    report: &mut Report,
) {
    if raw.0.is_empty() {
        report.add(
            Problem::error(
                Path::at("endpoints"),
                "is empty: clients could reach nothing",
            )
            .hint("leave it out for /mcp with all upstreams"),
        );
    }
    let own = raw
        .0
        .iter()
        .filter_map(|(_, raw)| OrOff::section(raw.policy.as_ref()));
    policy::read(own, &defaults.folder, &mut part.files);
    for (text, raw) in raw.0 {
        let path = Path::at("endpoints").key(&text);
        if let Err(message) = legal(&text) {
            report.add(Problem::error(path, message).hint("such as /mcp or /team/files"));
            continue;
        }
        if standing
            .endpoints
            .iter()
            .any(|other| other.id.as_str() == text)
        {
            report.add(Problem::error(
                path,
                "another file has an endpoint of this path",
            ));
            continue;
        }
        if let Some(endpoint) = one(&text, &raw, defaults, (standing, part), report) {
            let files = (defaults.folder.as_path(), &mut part.files);
            part.rulings
                .push(policy::ruling(&raw, &endpoint, files, report));
            part.endpoints.push(endpoint);
        }
    }
}

fn one(
    text: &str,
    raw: &RawEndpoint,
    defaults: &Defaults,
    files: (&Part, &Part),
    report: &mut Report,
) -> Option<Endpoint> {
    let path = Path::at("endpoints").key(text);
    let page = rules::page(raw.page.as_ref(), defaults.page, &path.key("page"), report);
    let deadlines = raw
        .deadlines
        .as_ref()
        .map(|own| rules::deadlines(Some(own), UNBOUNDED, &path.key("deadlines"), report));
    let mode = mode(raw, defaults, files, &path, report);
    let naming = match &mode {
        Some(EndpointMode::Aggregate { naming, .. }) => naming,
        _ => &defaults.naming,
    };
    let tools = toolsets::check(raw.tools.as_ref(), naming, &path, report);
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
    defaults: &Defaults,
    files: (&Part, &Part),
    path: &Path,
    report: &mut Report,
) -> Option<EndpointMode> {
    match (&raw.upstream, &raw.upstreams) {
        (Some(one), None) => {
            if raw.naming.is_some() {
                let problem =
                    Problem::error(path.key("naming"), "means nothing here: nothing is renamed");
                report.add(problem.hint("`upstreams: [..]` gives names with a prefix"));
            }
            known(one, files, &path.key("upstream"), report).map(EndpointMode::Transparent)
        }
        (None, Some(listed)) => {
            let mut upstreams: Vec<UpstreamId> = Vec::new();
            for (n, text) in listed.iter().enumerate() {
                let Some(id) = known(text, files, &path.key("upstreams").key(n), report) else {
                    continue;
                };
                if upstreams.contains(&id) {
                    report.add(Problem::error(
                        path.key("upstreams").key(n),
                        format!("`{id}` is listed twice"),
                    ));
                } else {
                    upstreams.push(id);
                }
            }
            if listed.is_empty() {
                report.add(Problem::error(path.key("upstreams"), "is empty"));
            }
            let (naming, prefix) = match &raw.naming {
                Some(own) => merge(own, defaults, &path.key("naming"), report),
                None => (defaults.naming.clone(), defaults.prefix),
            };
            Some(EndpointMode::Aggregate {
                upstreams,
                naming,
                prefix,
            })
        }
        (Some(_), Some(_)) => {
            let problem = Problem::error(path.clone(), "has both `upstream` and `upstreams`");
            report.add(problem.hint(
                "`upstream` shows that one unchanged, `upstreams` shows several in one list",
            ));
            None
        }
        (None, None) => {
            if !report.blames(path) {
                let problem = Problem::error(path.clone(), "shows no upstream");
                report.add(problem.hint("write { upstreams: [..] } or { upstream: one }"));
            }
            None
        }
    }
}

fn merge(
    own: &super::super::raw::RawNaming,
    defaults: &Defaults,
    path: &Path,
    report: &mut Report,
) -> (
    weir_core::names::ToolNaming,
    weir_core::endpoint::NamePrefix,
) {
    rules::naming(Some(own), Some(&defaults.raw_naming), path, report)
        .unwrap_or((defaults.naming.clone(), defaults.prefix))
}

fn known(
    text: &str,
    (standing, part): (&Part, &Part),
    path: &Path,
    report: &mut Report,
) -> Option<UpstreamId> {
    let mut ids = standing
        .upstreams
        .iter()
        .chain(&part.upstreams)
        .map(|plan| &plan.settings.id);
    if let Some(id) = ids.clone().find(|id| id.as_str() == text) {
        return Some(id.clone());
    }
    // An upstream with an error is already reported.
    if !report.blames(&Path::at("upstreams").key(text)) {
        let names: Vec<&str> = ids.by_ref().map(UpstreamId::as_str).collect();
        let hint = if names.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there are: {}", names.join(", "))
        };
        report
            .add(Problem::error(path.clone(), format!("there is no upstream `{text}`")).hint(hint));
    }
    None
}

fn legal(path: &str) -> Result<(), &'static str> {
    let segments = || path.split('/').skip(1);
    if !path.starts_with('/') {
        Err("must start with /")
    } else if path.len() > LONGEST {
        Err("is too long for a path")
    } else if path == "/.well-known" || path.starts_with("/.well-known/") {
        Err("is kept for metadata")
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
