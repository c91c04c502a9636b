//! Names of upstreams and endpoints in rules and selections of tools. A rule that names none that
//! exist never applies, so a tool that it should forbid stays allowed. These are warnings, because
//! teams' files come and go.

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_core::Endpoint;
use weir_core::endpoint::{EndpointMode, NamePrefix};
use weir_core::names::UpstreamId;
use weir_core::toolset::{NamePattern, Toolset};
use weir_policy::rules::{NamedEntity, PolicyFile};

use crate::checked_config::Config;

pub(super) fn check(config: &Config, report: &mut ConfigReport) {
    let common = config.rules.common();
    check_rules(config, common, &ConfigPath::at("policy"), report);
    for endpoint in &config.endpoints {
        let path = ConfigPath::at("endpoints").key(&endpoint.id);
        let own = config.rules.own(&endpoint.id);
        check_rules(config, own, &path.key("policy"), report);
        if let Some(tools) = &endpoint.tools {
            check_selection(endpoint, tools, &path.key("tools"), report);
        }
    }
}

fn check_rules(
    config: &Config,
    files: &[PolicyFile],
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    for named in files.iter().flat_map(PolicyFile::named_entities) {
        if let Some(fault) = fault(config, &named) {
            let NamedEntity { rule, kind, id } = named;
            let message = format!("the rule {rule} names {kind}::\"{id}\", {fault}");
            report.add(ConfigProblem::warning(path.clone(), message));
        }
    }
}

/// Returns the reason why no request can be about an entity.
fn fault(config: &Config, named: &NamedEntity) -> Option<String> {
    let no_upstream = |id: &str| {
        let mut upstreams = config.upstreams.iter();
        let exists = upstreams.any(|plan| plan.settings.id.as_str() == id);
        (!exists).then(|| format!("but there is no upstream `{id}`"))
    };
    let id = named.id.as_str();
    match named.kind.as_str() {
        "Upstream" => no_upstream(id),
        "Endpoint" => {
            let mut endpoints = config.endpoints.iter();
            let exists = endpoints.any(|endpoint| endpoint.id.as_str() == id);
            (!exists).then(|| format!("but there is no endpoint `{id}`"))
        }
        "Tool" | "Prompt" | "Resource" | "ResourceTemplate" => match id.split_once('/') {
            Some((upstream, _)) => no_upstream(upstream),
            None => Some("which has no `upstream/` before the upstream's own name".to_owned()),
        },
        "Principal" if id != "anonymous" && !id.contains(' ') => {
            Some("which is not `ISSUER SUBJECT`".to_owned())
        }
        _ => None,
    }
}

fn check_selection(
    endpoint: &Endpoint,
    tools: &Toolset,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    let listed = |key, patterns: &[NamePattern]| -> Vec<(ConfigPath, NamePattern)> {
        let patterns = patterns.iter().cloned().enumerate();
        patterns
            .map(|(n, pattern)| (path.key(key).key(n), pattern))
            .collect()
    };
    let keyed = |key, patterns: &mut dyn Iterator<Item = &NamePattern>| {
        let pair = |pattern: &NamePattern| (path.key(key).key(pattern.as_str()), pattern.clone());
        patterns.map(pair).collect::<Vec<_>>()
    };
    let all = [
        listed("include", &tools.include),
        listed("exclude", &tools.exclude),
        keyed("alias", &mut tools.aliases.iter().map(|(name, _)| name)),
        keyed(
            "describe",
            &mut tools.descriptions.iter().map(|(name, _)| name),
        ),
        keyed("annotations", &mut tools.hints.iter().map(|(name, _)| name)),
        keyed("scopes", &mut tools.scopes.iter().map(|(name, _)| name)),
    ];
    for (path, pattern) in all.into_iter().flatten() {
        if let Some(id) = absent_upstream(endpoint, &pattern) {
            let message = format!("has no effect: the endpoint shows no upstream `{id}`");
            report.add(ConfigProblem::warning(path, message));
        }
    }
}

/// Returns the upstream that a pattern names, in `upstream/tool` or by the prefix of a tool's name,
/// if the endpoint does not show it.
fn absent_upstream<'a>(endpoint: &'a Endpoint, pattern: &'a NamePattern) -> Option<&'a str> {
    let text = pattern.as_str();
    let literal = &text[..text.find(['*', '?']).unwrap_or(text.len())];
    let shows = |id: &str| match &endpoint.mode {
        EndpointMode::Aggregate { upstreams, .. } => upstreams
            .iter()
            .map(UpstreamId::as_str)
            .any(|one| one == id),
        EndpointMode::Transparent(one) => one.as_str() == id,
    };
    if let Some((id, _)) = literal.split_once('/') {
        // An upstream's own name for a tool may have a slash too.
        let is_id = UpstreamId::new(id).is_ok();
        return (is_id && !shows(id)).then_some(id);
    }
    match &endpoint.mode {
        EndpointMode::Aggregate {
            naming,
            prefix: NamePrefix::Always,
            ..
        } => {
            let mut ids = naming.possible_upstreams(literal).peekable();
            let first = *ids.peek()?;
            (!ids.any(shows)).then_some(first)
        }
        EndpointMode::Aggregate { .. } | EndpointMode::Transparent(_) => None,
    }
}
