//! `teams`: the rights of the files in the `include` folder, and the check of each such file
//! against them.

mod host_pattern;

use std::collections::HashMap;
use std::path::{Component, Path as FilePath};

use weir_core::endpoint::EndpointMode;
use weir_core::names::EndpointId;
use weir_core::toolset::NamePattern;

use super::super::UpstreamPlan;
use super::super::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use super::super::raw::{
    OrOff, OrderedMap, RawConsent, RawEndpoint, RawOutbound, RawTeam, RawTeamFile,
};
use super::config_defaults::ConfigDefaults;
use super::mcp_servers_check::upstream_slug;
use super::{ConfigPart, DEFAULT_PATH, MainConfig, default_endpoint};
use host_pattern::HostPattern;

/// The rights of all teams, by the names of their files without the extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct TeamGrants(HashMap<String, TeamGrant>);

/// The rights of one team's file. The default grants no rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct TeamGrant {
    team: String,
    env: Vec<NamePattern>,
    commands: bool,
    hosts: Vec<HostPattern>,
    authorization_servers: Vec<HostPattern>,
    paths: Vec<NamePattern>,
    ids: Vec<NamePattern>,
    upstreams: Vec<NamePattern>,
    files: Vec<NamePattern>,
    trust: bool,
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

fn matches_any(patterns: &[NamePattern], text: &str) -> bool {
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

    fn refused(&self, path: ConfigPath, problem: &str, right: &str) -> ConfigProblem {
        ConfigProblem::error(
            path,
            format!("{problem}, which the main file does not grant to this file"),
        )
        .hint(format!("see {} in the main file", self.right_path(right)))
    }
}

/// Checks a team's file against its rights. `standing` holds the parts of the files read before.
pub(super) fn check_rights(
    raw: &RawTeamFile,
    grant: &TeamGrant,
    defaults: &ConfigDefaults,
    standing: &ConfigPart,
    report: &mut ConfigReport,
) {
    for (id, upstream) in raw.upstreams.iter().flat_map(|upstreams| &upstreams.0) {
        let path = ConfigPath::at("upstreams").key(id);
        check_id(grant, id, &path, report);
        let (command, url) = (upstream.command.as_ref(), upstream.url.as_ref());
        check_destination(grant, command, url, &path, report);
        if let Some(auth) = &upstream.auth {
            check_authorization_servers(grant, auth, &path.key("auth"), report);
        }
        if let Some(file) = &upstream.ca_file {
            check_file(grant, file, &defaults.folder, path.key("ca_file"), report);
        }
        if let Some(file) =
            OrOff::section(upstream.secrets.as_ref()).and_then(|secrets| secrets.patterns.as_ref())
        {
            check_file(
                grant,
                file,
                &defaults.folder,
                path.key("secrets").key("patterns"),
                report,
            );
        }
        if upstream.trust.is_some() && !grant.trust {
            report.add(grant.refused(
                path.key("trust"),
                "decides the trust in annotations",
                "trust",
            ));
        }
    }
    for (id, server) in raw.mcp_servers.iter().flat_map(|servers| &servers.0) {
        let path = ConfigPath::at("mcpServers").key(id);
        check_id(grant, &upstream_slug(id), &path, report);
        let (command, url) = (server.command.as_ref(), server.url.as_ref());
        check_destination(grant, command, url, &path, report);
    }
    let own = own_ids(raw);
    for (text, endpoint) in raw.endpoints.iter().flat_map(|endpoints| &endpoints.0) {
        let path = ConfigPath::at("endpoints").key(text);
        if !matches_any(&grant.paths, text) {
            report.add(grant.refused(path.clone(), "is a path", "paths"));
        }
        let foreign = |id: &str| {
            !own.iter().any(|own| own == id)
                && standing
                    .upstreams
                    .iter()
                    .any(|plan| plan.settings.id.as_str() == id)
        };
        check_endpoint_rights(grant, endpoint, foreign, &path, report);
        check_policy_files(grant, endpoint, &defaults.folder, &path, report);
    }
}

/// Returns the ids of the upstreams that a file adds.
fn own_ids(raw: &RawTeamFile) -> Vec<String> {
    let upstreams = raw
        .upstreams
        .iter()
        .flat_map(|upstreams| &upstreams.0)
        .map(|(id, _)| id.clone());
    let servers = raw
        .mcp_servers
        .iter()
        .flat_map(|servers| &servers.0)
        .map(|(key, _)| upstream_slug(key));
    upstreams.chain(servers).collect()
}

/// Checks the id of an upstream: rules, rates and endpoints of other files refer to it.
fn check_id(grant: &TeamGrant, id: &str, path: &ConfigPath, report: &mut ConfigReport) {
    if !matches_any(&grant.ids, id) {
        let names: Vec<&str> = grant.ids.iter().map(NamePattern::as_str).collect();
        let hint = format!(
            "write an id that matches {}, or see {} in the main file",
            names.join(" or "),
            grant.right_path("ids")
        );
        let problem = format!("has the id `{id}`, which the main file does not grant to this file");
        report.add(ConfigProblem::error(path.clone(), problem).hint(hint));
    }
}

/// Checks the program or host of an upstream.
fn check_destination(
    grant: &TeamGrant,
    command: Option<&String>,
    url: Option<&String>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    if command.is_some() && !grant.commands {
        report.add(grant.refused(path.key("command"), "starts a program", "commands"));
    }
    if let Some(url) = url {
        let right = HostRight {
            hosts: &grant.hosts,
            name: "hosts",
        };
        check_host(grant, right, url, path.key("url"), report);
    }
}

/// Checks the authorization servers of an upstream: its client secret is sent there, and with a
/// token exchange the tokens of callers.
fn check_authorization_servers(
    grant: &TeamGrant,
    auth: &RawOutbound,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    for (key, url) in [
        ("issuer", &auth.issuer),
        ("token_endpoint", &auth.token_endpoint),
    ] {
        if let Some(url) = url {
            let right = HostRight {
                hosts: &grant.authorization_servers,
                name: "authorization_servers",
            };
            check_host(grant, right, url, path.key(key), report);
        }
    }
}

/// The hosts that a team may use for one purpose, with the name of the right in `teams`.
#[derive(Clone, Copy)]
struct HostRight<'a> {
    hosts: &'a [HostPattern],
    name: &'static str,
}

/// Checks a URL's host against the granted ones. A text that is no URL is refused by the check of
/// its key.
fn check_host(
    grant: &TeamGrant,
    right: HostRight<'_>,
    url: &str,
    path: ConfigPath,
    report: &mut ConfigReport,
) {
    let Ok(url) = url.parse::<http::Uri>() else {
        return;
    };
    if url.host().is_some() && !right.hosts.iter().any(|host| host.fits(&url)) {
        report.add(grant.refused(path, "leads to a host", right.name));
    }
}

/// Checks the upstreams that an endpoint shows, and its annotations.
fn check_endpoint_rights(
    grant: &TeamGrant,
    endpoint: &RawEndpoint,
    foreign: impl Fn(&str) -> bool,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    let one = endpoint
        .upstream
        .iter()
        .map(|id| (path.key("upstream"), id));
    let listed = endpoint.upstreams.iter().flatten().enumerate();
    for (path, id) in one.chain(listed.map(|(n, id)| (path.key("upstreams").key(n), id))) {
        if foreign(id) && !matches_any(&grant.upstreams, id) {
            report.add(grant.refused(path, "shows an upstream of another file", "upstreams"));
        }
    }
    let annotations = endpoint
        .tools
        .as_ref()
        .and_then(|tools| tools.annotations.as_ref());
    if annotations.is_some() && !grant.trust {
        let path = path.key("tools").key("annotations");
        report.add(grant.refused(path, "decides the trust in annotations", "trust"));
    }
}

/// Checks the policy files of an endpoint.
fn check_policy_files(
    grant: &TeamGrant,
    endpoint: &RawEndpoint,
    folder: &FilePath,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    let files = OrOff::section(endpoint.policy.as_ref())
        .into_iter()
        .flat_map(|policy| policy.files.iter().flatten());
    for (n, file) in files.enumerate() {
        check_file(
            grant,
            file,
            folder,
            path.key("policy").key("files").key(n),
            report,
        );
    }
}

/// Checks a file that weir would read for the team: a plain file, under a granted name, that does
/// not link out of its folder.
fn check_file(
    grant: &TeamGrant,
    name: &str,
    folder: &FilePath,
    path: ConfigPath,
    report: &mut ConfigReport,
) {
    if has_parent(FilePath::new(name)) || !matches_any(&grant.files, name) {
        report.add(grant.refused(path, "names a file", "files"));
        return;
    }
    let file = folder.join(name);
    let within = |file: &FilePath| {
        Some(
            std::fs::canonicalize(file)
                .ok()?
                .starts_with(file.parent()?.canonicalize().ok()?),
        )
    };
    // A missing file is reported when it is read.
    if file.exists() && (within(&file) != Some(true) || !file.is_file()) {
        report.add(
            ConfigProblem::error(path, "is not a regular file in its folder")
                .hint("put the file itself into that folder"),
        );
    }
}

/// Reports if a path has a `..` component.
fn has_parent(file: &FilePath) -> bool {
    file.components().any(|part| part == Component::ParentDir)
}

/// Adds the upstreams of a file without endpoints to the default ones, as far as their paths are
/// granted.
pub(crate) fn add_to_default_endpoints(
    main: &mut MainConfig,
    added: &[UpstreamPlan],
    grant: &TeamGrant,
) {
    let (endpoints, defaults) = (&mut main.config.endpoints, &main.defaults);
    for id in added.iter().map(|plan| &plan.settings.id) {
        let everything = endpoints
            .iter_mut()
            .find(|endpoint| endpoint.id.as_str() == DEFAULT_PATH);
        match everything.map(|endpoint| &mut endpoint.mode) {
            Some(EndpointMode::Aggregate { upstreams, .. })
                if main.has_default_endpoint && matches_any(&grant.paths, DEFAULT_PATH) =>
            {
                upstreams.push(id.clone());
            }
            None if matches_any(&grant.paths, DEFAULT_PATH) => {
                endpoints.push(default_endpoint(
                    DEFAULT_PATH,
                    defaults.aggregate_mode(vec![id.clone()]),
                    defaults,
                ));
                main.has_default_endpoint = true;
            }
            _ => {}
        }
        let alone = format!("{DEFAULT_PATH}/{id}");
        let taken = endpoints
            .iter()
            .any(|endpoint| endpoint.id == EndpointId::new(&alone));
        if !taken && matches_any(&grant.paths, &alone) {
            endpoints.push(default_endpoint(
                &alone,
                EndpointMode::Transparent(id.clone()),
                defaults,
            ));
        }
    }
}
