//! The upstreams and endpoints of the main file or a team's file, and the protections of upstreams.

use std::sync::Arc;

use weir_config_file::config_report::ConfigPath;
use weir_core::Endpoint;
use weir_core::endpoint::ToolRules;
use weir_core::names::UpstreamId;
use weir_policy::rules::EndpointPolicies;
use weir_schema::{CheckMode, Validation};

use crate::checked_config::{Config, UpstreamPlan};
use crate::config_part::ConfigPart;
use crate::waivers::Waivers;
use crate::weakenings::weakening::ProtectionLoss;

/// The upstreams and endpoints of a config or a team's file, with their rules and waivers.
#[derive(Clone, Copy)]
pub(super) struct ServedParts<'a> {
    pub(super) upstreams: &'a [UpstreamPlan],
    pub(super) endpoints: &'a [Endpoint],
    pub(super) rules: &'a EndpointPolicies,
    pub(super) waivers: &'a Waivers,
}

impl<'a> ServedParts<'a> {
    pub(super) fn of_config(config: &'a Config) -> Self {
        let Config {
            upstreams,
            endpoints,
            rules,
            waivers,
            ..
        } = config;
        Self {
            upstreams,
            endpoints,
            rules,
            waivers,
        }
    }

    pub(super) fn of_part(part: &'a ConfigPart, rules: &'a EndpointPolicies) -> Self {
        Self {
            upstreams: &part.upstreams,
            endpoints: &part.endpoints,
            rules,
            waivers: &part.waivers,
        }
    }

    pub(super) fn upstream(&self, id: &UpstreamId) -> Option<&'a UpstreamPlan> {
        self.upstreams.iter().find(|plan| plan.settings.id == *id)
    }
}

/// Returns the tools of an upstream with scopes of their own: its id, the tool's name, the scopes.
pub(super) fn tool_scopes(
    plan: &UpstreamPlan,
) -> impl Iterator<Item = (&UpstreamId, &str, &[Arc<str>])> {
    let tools = plan
        .rules
        .tools
        .iter()
        .filter(|(_, tool)| !tool.scopes.is_empty());
    tools.map(|(name, tool)| (&plan.settings.id, name.as_str(), tool.scopes.as_slice()))
}

/// One of the two checks: its key, its value, the test that it is enforced, and the hint that gives
/// it up.
type ValidationSide = (
    &'static str,
    fn(&Validation) -> CheckMode,
    fn(CheckMode) -> bool,
    &'static str,
);

/// For arguments, only an explicit `enforce` counts: it refuses more than the default does.
const SIDES: [ValidationSide; 2] = [
    (
        "input",
        |checks| checks.input,
        |check| check == CheckMode::Enforce,
        "write validation: { input: warn } there",
    ),
    (
        "output",
        |checks| checks.output,
        CheckMode::refuses,
        "write validation: { output: warn } there",
    ),
];

/// Finds checks that the old file enforces explicitly, and that the new file does not have at that
/// path any more.
pub(super) fn validation(old: &ServedParts<'_>, new: &ServedParts<'_>) -> Vec<ProtectionLoss> {
    let mut all = Vec::new();
    for plan in old.upstreams {
        let id = &plan.settings.id;
        let Some(now) = new.upstream(id) else {
            continue;
        };
        let tools = plan.rules.tools.iter().map(|(name, _)| Some(name.as_str()));
        for tool in std::iter::once(None).chain(tools) {
            for (side, check, enforces, words) in SIDES {
                if !enforces(check(&effective(plan, tool)))
                    || enforces(check(&effective(now, tool)))
                {
                    continue;
                }
                let places = places(id, tool, side);
                let Some(at) = places.iter().position(|place| old.waivers.has_key(place)) else {
                    continue;
                };
                if !places[..=at].iter().any(|place| new.waivers.has_key(place)) {
                    let message = "values that do not match their schema would pass";
                    all.push(ProtectionLoss::new(places[at].clone(), message, words));
                }
            }
        }
    }
    all
}

/// Returns the checks of one of an upstream's tools, or of the tools without an entry.
fn effective(plan: &UpstreamPlan, tool: Option<&str>) -> Validation {
    let own = |name| plan.rules.tools.iter().find(|(other, _)| other == name);
    let own = tool
        .and_then(own)
        .and_then(|(_, rules): &(String, ToolRules)| rules.validation);
    own.unwrap_or(plan.rules.validation)
}

/// Returns the paths that can set the check, the most specific first.
fn places(id: &UpstreamId, tool: Option<&str>, side: &str) -> Vec<ConfigPath> {
    let upstream = ConfigPath::at("upstreams").key(id);
    let tool = tool.map(|name| upstream.key("tools").key(name));
    let all = tool.into_iter().chain([upstream, ConfigPath::root()]);
    all.map(|place| place.key("validation").key(side)).collect()
}

/// Finds upstreams whose `asks` key was removed.
pub(super) fn asks(old: &ServedParts<'_>, new: &ServedParts<'_>) -> Vec<ProtectionLoss> {
    let mut all = Vec::new();
    for id in old.upstreams.iter().map(|plan| &plan.settings.id) {
        let path = ConfigPath::at("upstreams").key(id).key("asks");
        if new.upstream(id).is_some() && old.waivers.has_key(&path) && !new.waivers.has_key(&path) {
            let message =
                "the upstream could send clients every request that their capabilities allow";
            all.push(ProtectionLoss::new(
                path,
                message,
                "write asks: [sampling, elicitation, roots]",
            ));
        }
    }
    all
}

/// Compares the search for secrets in the calls of upstreams, and its patterns.
pub(super) fn secrets(old: &ServedParts<'_>, new: &ServedParts<'_>) -> Vec<ProtectionLoss> {
    let mut all = Vec::new();
    for plan in old.upstreams {
        let id = &plan.settings.id;
        let (Some(was), Some(now)) = (&plan.rules.secrets, new.upstream(id)) else {
            continue;
        };
        let path = ConfigPath::at("upstreams").key(id).key("secrets");
        let Some(now) = &now.rules.secrets else {
            all.push(ProtectionLoss::new(
                path,
                format!("the calls of {id} would not be searched for secrets"),
                "write secrets: off",
            ));
            continue;
        };
        if was.refuses_arguments && !now.refuses_arguments {
            let message = format!("arguments with secrets would go to {id}");
            all.push(ProtectionLoss::new(
                path.key("arguments"),
                message,
                "write arguments: off",
            ));
        }
        let path = path.key("patterns");
        let gone = was
            .patterns
            .names()
            .filter(|name| !now.patterns.names().any(|other| other == *name));
        all.extend(gone.map(|name| {
            ProtectionLoss::without_own_key(
                path.key(name),
                format!("the pattern {name} of {id} would be removed"),
            )
        }));
    }
    all
}
