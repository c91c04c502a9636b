//! `tools:` and `scopes:` of endpoints, and `scopes:` of an upstream's tools.

use std::sync::Arc;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{OrderedMap, RawHints, RawToolset};
use weir_core::names::ToolNaming;
use weir_core::toolset::{NamePattern, ToolHints, Toolset};

/// The largest number of entries. Each is matched against every tool.
const MAX_ENTRIES: usize = 10_000;

/// Returns the toolset of an endpoint, if it has one. Aliases must be names that `naming` allows.
pub(super) fn check(
    raw: Option<&RawToolset>,
    naming: &ToolNaming,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<Arc<Toolset>> {
    let raw = raw?;
    let path = path.key("tools");
    let set = Toolset {
        include: patterns(raw.include.as_deref(), &path.key("include"), report),
        exclude: patterns(raw.exclude.as_deref(), &path.key("exclude"), report),
        aliases: aliases(raw.alias.as_ref(), naming, &path.key("alias"), report),
        descriptions: plain(raw.describe.as_ref(), &path.key("describe"), report),
        hints: hints(raw.annotations.as_ref(), &path.key("annotations"), report),
        scopes: by_pattern(raw.scopes.as_ref(), &path.key("scopes"), report),
    };
    if raw.include.as_ref().is_some_and(Vec::is_empty) {
        let problem = ConfigProblem::error(path.key("include"), "is empty: no tool would be left");
        report.add(problem.hint("leave it out for all tools"));
    }
    Some(Arc::new(set))
}

/// Returns scopes, as a challenge can name them (RFC 6750, section 3).
pub(super) fn scopes(
    raw: &[String],
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<Arc<str>> {
    let mut scopes: Vec<Arc<str>> = Vec::new();
    for (n, text) in raw.iter().enumerate() {
        if !is_scope(text) {
            report.add(no_scope(path.key(n)));
        } else if text.contains('*') {
            let problem =
                ConfigProblem::error(path.key(n), "has a `*`, but scopes have no wildcards");
            report.add(problem.hint("name each scope"));
        } else {
            scopes.push(text.as_str().into());
        }
    }
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

/// Reports if a text is a scope token (RFC 6749, 3.3).
pub(super) fn is_scope(text: &str) -> bool {
    let mut bytes = text.bytes();
    !text.is_empty() && bytes.all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// Returns the problem of a text that is no scope.
pub(super) fn no_scope(path: ConfigPath) -> ConfigProblem {
    ConfigProblem::error(path, "is not a scope").hint("visible ASCII without spaces, quotes and \\")
}

fn patterns(
    raw: Option<&[String]>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<NamePattern> {
    let raw = raw.unwrap_or_default();
    check_entry_count(raw.len(), path, report);
    raw.iter()
        .enumerate()
        .filter_map(|(n, text)| pattern(text, &path.key(n), report))
        .collect()
}

fn pattern(text: &str, path: &ConfigPath, report: &mut ConfigReport) -> Option<NamePattern> {
    if text.is_empty() {
        report.add(ConfigProblem::error(path.clone(), "must not be empty"));
        return None;
    }
    Some(NamePattern::new(text))
}

fn name(text: &str, path: &ConfigPath, report: &mut ConfigReport) -> Option<NamePattern> {
    let pattern = pattern(text, path, report)?;
    if !pattern.is_plain() {
        report.add(
            ConfigProblem::error(path.clone(), "must be one name")
                .hint("`*` and `?` are not allowed here"),
        );
        return None;
    }
    Some(pattern)
}

fn aliases(
    raw: Option<&OrderedMap<String>>,
    naming: &ToolNaming,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<(NamePattern, Arc<str>)> {
    let mut aliases: Vec<(NamePattern, Arc<str>)> = Vec::new();
    for (tool, alias) in plain(raw, path, report) {
        let path = path.key(tool.as_str());
        if !naming.accepts_bare(&alias) {
            report.add(ConfigProblem::error(
                path,
                format!("`{alias}` is not a name that `naming` allows"),
            ));
        } else if let Some((other, _)) = aliases.iter().find(|(_, taken)| *taken == alias) {
            report.add(ConfigProblem::error(
                path,
                format!("`{alias}` is already the alias of `{}`", other.as_str()),
            ));
        } else {
            aliases.push((tool, alias));
        }
    }
    aliases
}

fn plain(
    raw: Option<&OrderedMap<String>>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<(NamePattern, Arc<str>)> {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    check_entry_count(entries.len(), path, report);
    let one = |(tool, text): &(String, String)| {
        Some((name(tool, &path.key(tool), report)?, text.as_str().into()))
    };
    entries.iter().filter_map(one).collect()
}

fn hints(
    raw: Option<&OrderedMap<RawHints>>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<(NamePattern, ToolHints)> {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    check_entry_count(entries.len(), path, report);
    let one = |(tool, raw): &(String, RawHints)| {
        let hints = ToolHints {
            read_only: raw.read_only_hint,
            destructive: raw.destructive_hint,
            idempotent: raw.idempotent_hint,
            open_world: raw.open_world_hint,
        };
        Some((pattern(tool, &path.key(tool), report)?, hints))
    };
    entries.iter().filter_map(one).collect()
}

fn by_pattern(
    raw: Option<&OrderedMap<Vec<String>>>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<(NamePattern, Vec<Arc<str>>)> {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    check_entry_count(entries.len(), path, report);
    let one = |(tool, raw): &(String, Vec<String>)| {
        let path = path.key(tool);
        Some((pattern(tool, &path, report)?, scopes(raw, &path, report)))
    };
    entries.iter().filter_map(one).collect()
}

fn check_entry_count(count: usize, path: &ConfigPath, report: &mut ConfigReport) {
    if count > MAX_ENTRIES {
        report.add(ConfigProblem::error(
            path.clone(),
            format!("has more than {MAX_ENTRIES} entries"),
        ));
    }
}
