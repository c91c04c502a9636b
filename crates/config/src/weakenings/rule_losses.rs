//! Rules, scopes, and the selection of tools.

use std::fmt;
use std::sync::Arc;

use weir_config_file::config_report::ConfigPath;
use weir_core::Endpoint;
use weir_core::names::EndpointId;
use weir_core::toolset::{NamePattern, ToolHints, Toolset};
use weir_policy::rules::PolicyFile;

use crate::checked_config::Config;
use crate::weakenings::served_parts::{ServedParts, tool_scopes};
use crate::weakenings::weakening::ProtectionLoss;

/// Finds a config that falls back to the default endpoints, which show every upstream without the
/// scopes and rules of the listed ones.
pub(super) fn endpoints(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let guards = |endpoint: &&Endpoint| {
        let rules = &old.rules;
        endpoint.tools.is_some()
            || !rules.scopes(&endpoint.id).is_empty()
            || !rules.own(&endpoint.id).is_empty()
    };
    if !old.names_endpoints || new.names_endpoints {
        return Vec::new();
    }
    let loss = |endpoint: &Endpoint| {
        let id = &endpoint.id;
        let message = format!(
            "are removed: /mcp would show every upstream, without the scopes and tool selection of {id}"
        );
        ProtectionLoss::new(ConfigPath::at("endpoints"), message, "name the endpoints")
    };
    old.endpoints
        .iter()
        .find(guards)
        .map(loss)
        .into_iter()
        .collect()
}

/// Compares the rules for all endpoints.
pub(super) fn common_policy(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    policy_file_losses(
        old.rules.common(),
        new.rules.common(),
        &ConfigPath::at("policy"),
        "all endpoints",
    )
}

/// Compares the rules of single endpoints.
pub(super) fn endpoint_policies(
    old: &ServedParts<'_>,
    new: &ServedParts<'_>,
) -> Vec<ProtectionLoss> {
    let losses = |endpoint: &Endpoint| {
        let (id, path) = (
            &endpoint.id,
            ConfigPath::at("endpoints").key(&endpoint.id).key("policy"),
        );
        policy_file_losses(old.rules.own(id), new.rules.own(id), &path, id.as_str())
    };
    new.endpoints.iter().flat_map(losses).collect()
}

/// Compares the policy texts of one `policy`. The removal or truncation of a text also removes its
/// rules that forbid.
fn policy_file_losses(
    old: &[PolicyFile],
    new: &[PolicyFile],
    path: &ConfigPath,
    of: &str,
) -> Vec<ProtectionLoss> {
    if !old.is_empty() && new.is_empty() {
        let message = format!("the rules of {of} would be removed");
        return vec![ProtectionLoss::new(
            path.clone(),
            message,
            "write policy: off there",
        )];
    }
    let inline = path.key("inline");
    let place = |file: &PolicyFile| {
        let is_inline = file.name() == inline.to_string();
        if is_inline {
            inline.clone()
        } else {
            path.key(file.name())
        }
    };
    let mut all = Vec::new();
    for file in old {
        let name = file.name();
        let loss = match new.iter().find(|now| now.name() == name) {
            Some(now) => Some(now.forbids_cut_off(file))
                .filter(|lost| *lost > 0)
                .map(|lost| {
                    let message = format!("{name} lost its end, with {lost} of its forbid rules");
                    ProtectionLoss::new(
                        place(file),
                        message,
                        "end the text with a comment that says so",
                    )
                }),
            None => Some(file.forbids_without(new))
                .filter(|lost| *lost > 0)
                .map(|lost| {
                    ProtectionLoss::without_own_key(
                        place(file),
                        format!("{name} is removed, with {lost} of its forbid rules"),
                    )
                }),
        };
        all.extend(loss);
    }
    all
}

/// Finds lost annotations that mark a tool as dangerous. Rules that forbid such tools rely on them.
pub(super) fn annotations(old: &ServedParts<'_>, new: &ServedParts<'_>) -> Vec<ProtectionLoss> {
    // The hints that mark a tool as dangerous.
    let warnings = |hints: &ToolHints| {
        let ToolHints {
            read_only,
            destructive,
            idempotent,
            open_world,
        } = *hints;
        [
            read_only.map(|is| !is),
            destructive,
            idempotent.map(|is| !is),
            open_world,
        ]
    };
    let mut all = Vec::new();
    for endpoint in new.endpoints {
        let (id, none) = (&endpoint.id, Toolset::default());
        let (was, now) = (
            toolset(old, id).unwrap_or(&none),
            toolset(new, id).unwrap_or(&none),
        );
        let path = ConfigPath::at("endpoints")
            .key(id)
            .key("tools")
            .key("annotations");
        for (pattern, hints) in &was.hints {
            let is_said = |nth: usize| {
                let saying = now
                    .hints
                    .iter()
                    .filter(|(_, hints)| warnings(hints)[nth].is_some());
                is_covered(pattern, saying.map(|(pattern, _)| pattern))
            };
            let is_lost = warnings(hints)
                .iter()
                .enumerate()
                .any(|(nth, warns)| *warns == Some(true) && !is_said(nth));
            if is_lost {
                let message = format!(
                    "rules would no longer know the warning annotations of {}",
                    pattern.as_str()
                );
                all.push(ProtectionLoss::without_own_key(
                    path.key(pattern.as_str()),
                    message,
                ));
            }
        }
    }
    all
}

/// Compares the selection of an endpoint's tools.
pub(super) fn selection(old: &ServedParts<'_>, new: &ServedParts<'_>) -> Vec<ProtectionLoss> {
    let mut all = Vec::new();
    for endpoint in new.endpoints {
        let (id, none) = (&endpoint.id, Toolset::default());
        let (was, now) = (
            toolset(old, id).unwrap_or(&none),
            toolset(new, id).unwrap_or(&none),
        );
        let path = ConfigPath::at("endpoints").key(id).key("tools");
        // `*` excludes no tool.
        let selects = |tools: &Toolset| {
            !tools.include.is_empty() && tools.include.iter().all(|it| it.as_str() != "*")
        };
        if selects(was) && now.include.is_empty() {
            let message = format!("{id} would show all tools, not a selection");
            all.push(ProtectionLoss::new(
                path.key("include"),
                message,
                "write include: [\"*\"]",
            ));
        }
        let path = path.key("exclude");
        if !was.exclude.is_empty() && now.exclude.is_empty() {
            let message = format!("{id} would show the tools that it excludes");
            all.push(ProtectionLoss::new(path, message, "write exclude: []"));
        } else if now
            .exclude
            .iter()
            .all(|pattern| was.exclude.contains(pattern))
        {
            let gone = was
                .exclude
                .iter()
                .filter(|pattern| !is_covered(pattern, now.exclude.iter()));
            let message = |pattern: &NamePattern| {
                format!("{id} would show tools that match {}", pattern.as_str())
            };
            all.extend(gone.map(|pattern| {
                ProtectionLoss::without_own_key(path.key(pattern.as_str()), message(pattern))
            }));
        }
    }
    all
}

fn toolset<'a>(served: &ServedParts<'a>, id: &EndpointId) -> Option<&'a Toolset> {
    served
        .endpoints
        .iter()
        .find(|endpoint| endpoint.id == *id)?
        .tools
        .as_deref()
}

/// Reports if another pattern matches every name that this one matches. A `?` matches one
/// character, and `*` covers it.
fn is_covered<'a>(pattern: &NamePattern, mut by: impl Iterator<Item = &'a NamePattern>) -> bool {
    let text = pattern.as_str();
    by.any(|other| other == pattern || (!other.as_str().contains('?') && other.fits(text)))
}

/// Compares the scopes of endpoints, of their tools, and of upstreams' tools.
pub(super) fn scopes(old: &ServedParts<'_>, new: &ServedParts<'_>) -> Vec<ProtectionLoss> {
    let mut all = Vec::new();
    for endpoint in new.endpoints {
        let id = &endpoint.id;
        let path = ConfigPath::at("endpoints").key(id);
        all.extend(scope_losses(
            &path.key("scopes"),
            id,
            old.rules.scopes(id),
            new.rules.scopes(id),
        ));
        all.extend(by_pattern(
            &path.key("tools").key("scopes"),
            id,
            [old, new].map(|it| scopes_of_tools(it, id)),
        ));
    }
    for (id, name, scopes) in old.upstreams.iter().flat_map(tool_scopes) {
        if let Some(now) = new.upstream(id) {
            let now = tool_scopes(now)
                .find(|(_, other, _)| *other == name)
                .map(|(.., scopes)| scopes);
            let path = ConfigPath::at("upstreams")
                .key(id)
                .key("tools")
                .key(name)
                .key("scopes");
            all.extend(scope_losses(
                &path,
                &format_args!("{id}/{name}"),
                scopes,
                now.unwrap_or_default(),
            ));
        }
    }
    all
}

/// Compares one list of scopes. With a new scope in it, the list was changed on purpose.
fn scope_losses(
    path: &ConfigPath,
    of: &dyn fmt::Display,
    was: &[Arc<str>],
    now: &[Arc<str>],
) -> Vec<ProtectionLoss> {
    if !was.is_empty() && now.is_empty() {
        return vec![ProtectionLoss::new(
            path.clone(),
            format!("the scopes of {of} would be removed"),
            "write scopes: []",
        )];
    }
    if now.iter().any(|scope| !was.contains(scope)) {
        return Vec::new();
    }
    let gone = was.iter().filter(|scope| !now.contains(scope));
    gone.map(|scope| {
        ProtectionLoss::without_own_key(
            path.key(scope),
            format!("the scope {scope} of {of} would be removed"),
        )
    })
    .collect()
}

type ScopesByPattern<'a> = &'a [(NamePattern, Vec<Arc<str>>)];

fn scopes_of_tools<'a>(served: &ServedParts<'a>, id: &EndpointId) -> ScopesByPattern<'a> {
    toolset(served, id)
        .map(|tools| tools.scopes.as_slice())
        .unwrap_or_default()
}

fn by_pattern(
    path: &ConfigPath,
    id: &EndpointId,
    [was, now]: [ScopesByPattern<'_>; 2],
) -> Vec<ProtectionLoss> {
    let asking = |all: ScopesByPattern<'_>| all.iter().any(|(_, scopes)| !scopes.is_empty());
    if asking(was) && !asking(now) {
        return vec![ProtectionLoss::new(
            path.clone(),
            format!("the scopes of tools of {id} would be removed"),
            "write scopes: {}",
        )];
    }
    let mut all = Vec::new();
    for (pattern, scopes) in was.iter().filter(|(_, scopes)| !scopes.is_empty()) {
        let (text, same) = (
            pattern.as_str(),
            now.iter().find(|(other, _)| other == pattern),
        );
        let scoped = now
            .iter()
            .filter(|(_, scopes)| !scopes.is_empty())
            .map(|(other, _)| other);
        match same {
            Some((_, now)) => all.extend(scope_losses(
                &path.key(text),
                &format_args!("{id} {text}"),
                scopes,
                now,
            )),
            None if !is_covered(pattern, scoped) => {
                let message = format!("the scopes of {text} on {id} would be removed");
                all.push(ProtectionLoss::new(
                    path.key(text),
                    message,
                    "write [] for it",
                ));
            }
            None => {}
        }
    }
    all
}
