//! `teams`: the rights of the files in the `include` folder.

use std::collections::HashMap;
use std::path::{Component, Path as FilePath};

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::host_pattern::HostPattern;
use weir_config_file::raw::{OrderedMap, RawConsent, RawTeam};
use weir_config_file::upstream_slug::upstream_slug;
use weir_core::toolset::NamePattern;

/// The rights of all teams, by the names of their files without the extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct TeamGrants(HashMap<String, TeamGrant>);

/// The rights of one team's file. The default grants no rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct TeamGrant {
    pub(super) team: String,
    pub(super) env: Vec<NamePattern>,
    pub(super) commands: bool,
    pub(super) hosts: Vec<HostPattern>,
    pub(super) authorization_servers: Vec<HostPattern>,
    pub(super) paths: Vec<NamePattern>,
    pub(super) ids: Vec<NamePattern>,
    pub(super) upstreams: Vec<NamePattern>,
    pub(super) files: Vec<NamePattern>,
    pub(super) trust: bool,
}

/// Checks `teams`.
pub(super) fn check(
    raw: Option<OrderedMap<RawTeam>>,
    include: bool,
    report: &mut ConfigReport,
) -> TeamGrants {
    let Some(raw) = raw else {
        return TeamGrants::default();
    };
    if !include && !report.has_error_under(&ConfigPath::at("include")) {
        let problem =
            ConfigProblem::error(ConfigPath::at("teams"), "has no effect without `include`");
        report.add(problem.hint("write include: teams, and put the teams' files into that folder"));
    }
    let grants = raw.0.into_iter().map(|(team, raw)| {
        let path = ConfigPath::at("teams").key(&team);
        (team.clone(), grant(team, &raw, &path, report))
    });
    TeamGrants(grants.collect())
}

fn grant(team: String, raw: &RawTeam, path: &ConfigPath, report: &mut ConfigReport) -> TeamGrant {
    if team.is_empty() || team.contains('/') {
        let problem = ConfigProblem::error(path.clone(), "is not a file name");
        report.add(
            problem.hint("write the file's name without its extension: `red` for teams/red.yaml"),
        );
    }
    let ids = match &raw.ids {
        Some(ids) => patterns(Some(ids), &path.key("ids"), &UPSTREAM, report),
        None => default_ids(&team),
    };
    TeamGrant {
        team,
        ids,
        env: patterns(raw.env.as_deref(), &path.key("env"), &VARIABLE, report),
        commands: raw.commands == Some(RawConsent::Yes),
        hosts: hosts(raw.hosts.as_deref(), &path.key("hosts"), report),
        authorization_servers: hosts(
            raw.authorization_servers.as_deref(),
            &path.key("authorization_servers"),
            report,
        ),
        paths: patterns(raw.paths.as_deref(), &path.key("paths"), &ENDPOINT, report),
        upstreams: patterns(
            raw.upstreams.as_deref(),
            &path.key("upstreams"),
            &UPSTREAM,
            report,
        ),
        files: patterns(raw.files.as_deref(), &path.key("files"), &FILE, report),
        trust: raw.trust == Some(RawConsent::Yes),
    }
}

/// Returns the default ids of a team's upstreams. Other teams do not get these by default.
fn default_ids(team: &str) -> Vec<NamePattern> {
    let name = upstream_slug(team);
    vec![
        NamePattern::new(&name),
        NamePattern::new(&format!("{name}-*")),
    ]
}

/// The syntax of one kind of pattern.
struct PatternSyntax {
    is_legal: fn(&str) -> bool,
    kind: &'static str,
    hint: &'static str,
}

const VARIABLE: PatternSyntax = PatternSyntax {
    is_legal: |text| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_*?".contains(&byte))
    },
    kind: "an environment variable name",
    hint: "write RED_TOKEN, or RED_* for all names with that prefix",
};
const ENDPOINT: PatternSyntax = PatternSyntax {
    is_legal: |text| text.starts_with('/'),
    kind: "an endpoint path",
    hint: "write /mcp/red, or /mcp/red/* for all below it",
};
const UPSTREAM: PatternSyntax = PatternSyntax {
    is_legal: |text| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-*?".contains(&byte))
    },
    kind: "an upstream id",
    hint: "write search, or shared-* for all ids with that prefix",
};
const FILE: PatternSyntax = PatternSyntax {
    is_legal: |text| !has_parent(FilePath::new(text)),
    kind: "a file path",
    hint: "write teams/red/* for the files of a folder beside the config",
};

fn patterns(
    raw: Option<&[String]>,
    path: &ConfigPath,
    syntax: &PatternSyntax,
    report: &mut ConfigReport,
) -> Vec<NamePattern> {
    let mut patterns = Vec::new();
    for (n, text) in raw.unwrap_or_default().iter().enumerate() {
        if text.is_empty() || !(syntax.is_legal)(text) {
            report.add(
                ConfigProblem::error(path.key(n), format!("is not {}", syntax.kind))
                    .hint(syntax.hint),
            );
        } else {
            patterns.push(NamePattern::new(text));
        }
    }
    patterns
}

fn hosts(raw: Option<&[String]>, path: &ConfigPath, report: &mut ConfigReport) -> Vec<HostPattern> {
    let mut hosts = Vec::new();
    for (n, text) in raw.unwrap_or_default().iter().enumerate() {
        match HostPattern::parse(text) {
            Some(host) => hosts.push(host),
            None => report.add(
                ConfigProblem::error(path.key(n), format!("`{text}` is not a host"))
                    .hint("write red.example.com, red.example.com:8443, or *.red.example.com"),
            ),
        }
    }
    hosts
}

impl TeamGrants {
    /// Returns the rights of a file. A file without an entry in `teams` has none.
    pub(crate) fn of(&self, file: &FilePath) -> TeamGrant {
        let team = file.file_stem().and_then(|stem| stem.to_str());
        let named = team.and_then(|team| self.0.get(team)).cloned();
        named.unwrap_or_else(|| {
            let team = team.unwrap_or("NAME").to_owned();
            TeamGrant {
                ids: default_ids(&team),
                team,
                ..TeamGrant::default()
            }
        })
    }

    /// Warns of rights without a file: a name is probably misspelt.
    pub(crate) fn warn_of_missing<'a>(
        &self,
        files: impl Iterator<Item = &'a std::path::PathBuf>,
        report: &mut ConfigReport,
    ) {
        let files: Vec<&str> = files
            .filter_map(|file| file.file_stem()?.to_str())
            .collect();
        let mut missing: Vec<&String> = self
            .0
            .keys()
            .filter(|team| !files.contains(&team.as_str()))
            .collect();
        missing.sort_unstable();
        for team in missing {
            report.add(ConfigProblem::warning(
                ConfigPath::at("teams").key(team),
                "there is no file of this name in `include`",
            ));
        }
    }
}

/// Reports if one of the patterns fits a text.
pub(super) fn matches_any(patterns: &[NamePattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.fits(text))
}

impl TeamGrant {
    /// Reports if the file's `${NAME}` may name this variable.
    pub(crate) fn has_variable(&self, name: &str) -> bool {
        matches_any(&self.env, name)
    }

    /// Returns the paths that its endpoints may have.
    pub(crate) fn paths(&self) -> &[NamePattern] {
        &self.paths
    }

    /// Reports if an endpoint of the file may have this path.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        matches_any(&self.paths, path)
    }

    /// Returns the path in the main file that grants a right.
    pub(crate) fn right_path(&self, right: &str) -> ConfigPath {
        ConfigPath::at("teams").key(&self.team).key(right)
    }

    /// Returns the problem of a value without a right.
    pub(super) fn refused(&self, path: ConfigPath, problem: &str, right: &str) -> ConfigProblem {
        ConfigProblem::error(
            path,
            format!("{problem}, which the main file does not grant to this file"),
        )
        .hint(format!("see {} in the main file", self.right_path(right)))
    }
}

/// Reports if a path has a `..` component.
pub(super) fn has_parent(file: &FilePath) -> bool {
    file.components().any(|part| part == Component::ParentDir)
}
