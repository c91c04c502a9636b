//! The check of a team's file against its rights.

use std::path::Path as FilePath;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::host_pattern::HostPattern;
use weir_config_file::raw::{OrOff, RawEndpoint, RawOutbound, RawTeamFile};
use weir_config_file::upstream_slug::upstream_slug;
use weir_core::toolset::NamePattern;

use crate::check::config_defaults::ConfigDefaults;
use crate::config_part::EarlierFiles;
use crate::team_grants::{TeamGrant, has_parent, matches_any};

/// Checks a team's file against its rights.
pub(super) fn check_rights(
    raw: &RawTeamFile,
    grant: &TeamGrant,
    defaults: &ConfigDefaults,
    earlier: EarlierFiles<'_>,
    report: &mut ConfigReport,
) {
    for (id, upstream) in raw.upstreams.iter().flat_map(|upstreams| &upstreams.0) {
        let path = ConfigPath::at("upstreams").key(id);
        check_id(grant, id, &path, report);
        let (command, url) = (upstream.command.as_ref(), upstream.url.as_ref());
        check_destination(grant, command, url, &path, report);
        for (nth, url) in upstream.urls.iter().flatten().enumerate() {
            check_url_host(grant, url.url(), path.key("urls").key(nth), report);
        }
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
                && earlier
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
    check_url_host(grant, url, path.key("url"), report);
}

/// Checks that an upstream's URL is at a host of the team.
fn check_url_host(
    grant: &TeamGrant,
    url: Option<&String>,
    path: ConfigPath,
    report: &mut ConfigReport,
) {
    if let Some(url) = url {
        let right = HostRight {
            hosts: &grant.hosts,
            name: "hosts",
        };
        check_host(grant, right, url, path, report);
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

/// Checks a file that weir would read for the team: a plain file, under a granted name, that no link
/// leads out of the granted folder.
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
    // A missing file is reported when it is read.
    let stays = || {
        grant
            .files
            .iter()
            .any(|right| stays_within(right, name, folder) == Some(true))
    };
    if file.exists() && !(file.is_file() && stays()) {
        report.add(
            ConfigProblem::error(path, "is not a regular file in its folder")
                .hint("put the file itself into that folder"),
        );
    }
}

/// Reports if a right covers a file at its path without links, too. The file itself may be a link
/// within its folder, as those of config maps are, and the folder before the pattern's first
/// wildcard may be one: the team cannot replace that.
fn stays_within(right: &NamePattern, name: &str, folder: &FilePath) -> Option<bool> {
    let pattern = right.as_str();
    let literal = &pattern[..pattern.find(['*', '?']).unwrap_or(pattern.len())];
    let granted = &literal[..literal.rfind('/').map_or(0, |slash| slash + 1)];
    let file = folder.join(name);
    let own = file.parent()?.canonicalize().ok()?;
    let below = own.strip_prefix(folder.join(granted).canonicalize().ok()?);
    let real = FilePath::new(granted)
        .join(below.ok()?)
        .join(file.file_name()?);
    Some(right.fits(real.to_str()?) && file.canonicalize().ok()?.starts_with(own))
}
