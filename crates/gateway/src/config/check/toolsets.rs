//! `tools:` and `scopes:` of endpoints, and `scopes:` of an upstream's tools.

use std::sync::Arc;

use weir_core::names::ToolNaming;
use weir_core::toolset::{NamePattern, ToolHints, Toolset};

use super::super::raw::{Ordered, RawHints, RawToolset};
use super::super::report::{Path, Problem, Report};

/// The largest number of entries. Each is matched against every tool.
const MOST: usize = 10_000;

/// Returns the toolset of an endpoint, if it has one. Aliases must be names that `naming` allows.
pub(super) fn check(
    raw: Option<&RawToolset>,
    naming: &ToolNaming,
    path: &Path,
    report: &mut Report,
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
        let problem = Problem::error(path.key("include"), "is empty: no tool would be left");
        report.add(problem.hint("leave it out for all tools"));
    }
    Some(Arc::new(set))
}

/// Returns scopes, as a challenge can name them (RFC 6750, section 3).
pub(super) fn scopes(raw: &[String], path: &Path, report: &mut Report) -> Vec<Arc<str>> {
    let mut scopes: Vec<Arc<str>> = Vec::new();
    for (n, text) in raw.iter().enumerate() {
        let legal = !text.is_empty()
            && text
                .bytes()
                .all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e));
        if !legal {
            report.add(
                Problem::error(path.key(n), "is no scope")
                    .hint("visible ASCII without spaces, quotes and \\"),
            );
        } else if text.contains('*') {
            let problem = Problem::error(
                path.key(n),
                "has a `*`, and scopes stand for themselves only",
            );
            report.add(problem.hint("name each scope"));
        } else {
            scopes.push(text.as_str().into());
        }
    }
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

fn patterns(raw: Option<&[String]>, path: &Path, report: &mut Report) -> Vec<NamePattern> {
    let raw = raw.unwrap_or_default();
    bound(raw.len(), path, report);
    raw.iter()
        .enumerate()
        .filter_map(|(n, text)| pattern(text, &path.key(n), report))
        .collect()
}

fn pattern(text: &str, path: &Path, report: &mut Report) -> Option<NamePattern> {
    if text.is_empty() {
        report.add(Problem::error(path.clone(), "is no name"));
        return None;
    }
    Some(NamePattern::new(text))
}

fn name(text: &str, path: &Path, report: &mut Report) -> Option<NamePattern> {
    let pattern = pattern(text, path, report)?;
    if !pattern.is_plain() {
        report.add(
            Problem::error(path.clone(), "has to be one name").hint("`*` and `?` are for several"),
        );
        return None;
    }
    Some(pattern)
}

fn aliases(
    raw: Option<&Ordered<String>>,
    naming: &ToolNaming,
    path: &Path,
    report: &mut Report,
) -> Vec<(NamePattern, Arc<str>)> {
    let mut aliases: Vec<(NamePattern, Arc<str>)> = Vec::new();
    for (tool, alias) in plain(raw, path, report) {
        let path = path.key(tool.as_str());
        if !naming.accepts_bare(&alias) {
            report.add(Problem::error(
                path,
                format!("`{alias}` is no name that `naming` allows"),
            ));
        } else if let Some((other, _)) = aliases.iter().find(|(_, taken)| *taken == alias) {
            report.add(Problem::error(
                path,
                format!("`{alias}` is the alias of `{}` already", other.as_str()),
            ));
        } else {
            aliases.push((tool, alias));
        }
    }
    aliases
}

fn plain(
    raw: Option<&Ordered<String>>,
    path: &Path,
    report: &mut Report,
) -> Vec<(NamePattern, Arc<str>)> {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    bound(entries.len(), path, report);
    let one = |(tool, text): &(String, String)| {
        Some((name(tool, &path.key(tool), report)?, text.as_str().into()))
    };
    entries.iter().filter_map(one).collect()
}

fn hints(
    raw: Option<&Ordered<RawHints>>,
    path: &Path,
    report: &mut Report,
) -> Vec<(NamePattern, ToolHints)> {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    bound(entries.len(), path, report);
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
    raw: Option<&Ordered<Vec<String>>>,
    path: &Path,
    report: &mut Report,
) -> Vec<(NamePattern, Vec<Arc<str>>)> {
    let entries = raw.map(|raw| raw.0.as_slice()).unwrap_or_default();
    bound(entries.len(), path, report);
    let one = |(tool, raw): &(String, Vec<String>)| {
        let path = path.key(tool);
        Some((pattern(tool, &path, report)?, scopes(raw, &path, report)))
    };
    entries.iter().filter_map(one).collect()
}

fn bound(count: usize, path: &Path, report: &mut Report) {
    if count > MOST {
        report.add(Problem::error(
            path.clone(),
            format!("has more than {MOST} entries"),
        ));
    }
}
