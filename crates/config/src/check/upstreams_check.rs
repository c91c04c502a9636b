//! `upstreams`.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_secret::ConfigSecret;
use weir_config_file::http_url::is_local_url;
use weir_config_file::placeholder;
use weir_config_file::raw::{
    OrderedMap, RawAsk, RawInstances, RawProtocol, RawSession, RawTrust, RawUpstream,
    RawUpstreamDeadlines, RawUpstreamLimits, Size, Time,
};
use weir_config_file::upstream_slug::upstream_slug;
use weir_core::CapabilityClass;
use weir_core::endpoint::{ToolRules, UpstreamRules, WalkLimits};
use weir_core::names::UpstreamId;
use weir_upstream::{
    CaFile, ChildInstances, HttpUpstreamSettings, SecretHeader, SecretText, SessionSharing,
    StdioUpstreamSettings, TransportSettings, UpstreamBounds, UpstreamProtocol, UpstreamSettings,
};

use crate::check::config_defaults::{self, ConfigDefaults};
use crate::check::count_check::check_count;
use crate::check::outbound_check::OutboundContext;
use crate::check::{outbound_check, secrets_check, toolsets_check, upstream_urls_check};
use crate::checked_config::UpstreamPlan;
use crate::config_part::ConfigPart;

/// The default time for the start of a program: a package runner may download for most of a minute.
const DEFAULT_START: Duration = Duration::from_secs(60);
/// Headers that weir writes itself.
const OWN_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "te",
    "upgrade",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

pub(super) fn check(
    raw: Option<OrderedMap<RawUpstream>>,
    defaults: &ConfigDefaults,
    earlier: &[UpstreamPlan],
    part: &mut ConfigPart,
    report: &mut ConfigReport,
) {
    for (key, raw) in raw.unwrap_or_default().0 {
        let path = ConfigPath::at("upstreams").key(&key);
        let id = match UpstreamId::new(&key) {
            Ok(id) => id,
            Err(error) => {
                report.add(
                    ConfigProblem::error(path, error.to_string())
                        .hint(format!("such as `{}`", upstream_slug(&key))),
                );
                continue;
            }
        };
        if is_id_taken(&id, earlier, part) {
            report.add(ConfigProblem::error(
                path,
                format!("another upstream has the id `{id}`"),
            ));
            continue;
        }
        let secrets = secrets_check::check(
            raw.secrets.as_ref(),
            &defaults.folder,
            part,
            &path.key("secrets"),
            report,
        );
        if let Some(mut plan) = check_upstream(id, raw, defaults, &path, report) {
            plan.rules.secrets = secrets;
            part.upstreams.push(plan);
        }
    }
}

/// Reports if an upstream of this file, or of one read before, has the id.
pub(super) fn is_id_taken(id: &UpstreamId, earlier: &[UpstreamPlan], part: &ConfigPart) -> bool {
    earlier
        .iter()
        .chain(&part.upstreams)
        .any(|plan| plan.settings.id == *id)
}

/// Checks one upstream. Returns `None` if its transport has an error.
pub(super) fn check_upstream(
    id: UpstreamId,
    raw: RawUpstream,
    defaults: &ConfigDefaults,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<UpstreamPlan> {
    let rules = upstream_rules(&raw, defaults, path, report);
    let own = config_defaults::own_deadlines(
        raw.deadlines,
        defaults.own_deadlines,
        &path.key("deadlines"),
        report,
    );
    let protocol = protocol(raw.protocol);
    let bounds = bounds(raw.limits.as_ref(), path, report);
    let sharing = match (raw.session, raw.command.is_some()) {
        (Some(RawSession::Shared), _) => SessionSharing::Shared,
        // Without `auth` all callers are one principal and share a process. A single MCP client is
        // an exception: it can answer the upstream's requests.
        (None, true) if !defaults.auth && !defaults.one_host => SessionSharing::Shared,
        (Some(RawSession::Principal), _) | (None, _) => SessionSharing::Principal,
    };
    if raw.session.is_none() && raw.command.is_some() && defaults.auth {
        let text = "each caller has its own processes, one per set of client capabilities";
        let most = raw
            .limits
            .and_then(|limits| limits.max_processes)
            .unwrap_or(UpstreamSettings::DEFAULT_MAX_PROCESSES);
        let hint = format!(
            "at most {most} run at once (limits.max_processes); if it holds no caller's data, all callers can share one process: session: shared"
        );
        report.add(ConfigProblem::note(path.clone(), text).hint(hint));
    }
    let asks = raw
        .asks
        .as_deref()
        .map_or_else(|| sharing.default_client_capabilities(), asks);
    let named = raw
        .asks
        .iter()
        .flatten()
        .any(|ask| *ask == RawAsk::ElicitationUrl);
    let baggage = raw.baggage.unwrap_or_default();
    let transport = transport(raw, &defaults.folder, path, report)?;
    defaults.own_addresses.check(&transport, path, report);
    let visits = named || !defaults.auth || tells_apart(sharing, &transport);
    if !visits && asks.has(CapabilityClass::ELICITATION_URL) {
        let text = "URL elicitation is off: the server cannot tell weir's callers apart, so one caller's visit to a page would count for all";
        let problem = ConfigProblem::note(path.clone(), text);
        report.add(
            problem.hint("if it can, write asks: [sampling, elicitation, elicitation_url, roots]"),
        );
    }
    let connect = rules.deadlines.connect;
    let settings = UpstreamSettings {
        id,
        transport,
        protocol,
        session: sharing,
        client_capabilities: asks,
        allows_url_elicitation: visits,
        baggage,
        bounds,
        connect,
        own_deadlines: own,
    };
    Some(UpstreamPlan { settings, rules })
}

/// Reports if an upstream can tell callers apart: each caller has a session or process of its own,
/// and weir does not send one credential for all. Any fixed header, or a query in the URL, may be
/// such a credential.
fn tells_apart(sharing: SessionSharing, transport: &TransportSettings) -> bool {
    let has_own_name = match transport {
        TransportSettings::Stdio(_) => true,
        TransportSettings::Http(http) => match &http.auth {
            Some(auth) => auth.exchange.is_some(),
            None => {
                let mut urls = http.instances.iter().map(|one| &one.url).chain([&http.url]);
                http.headers.is_empty() && urls.all(|url| url.query().is_none())
            }
        },
    };
    sharing == SessionSharing::Principal && has_own_name
}

fn protocol(raw: Option<RawProtocol>) -> UpstreamProtocol {
    match raw {
        None | Some(RawProtocol::Auto) => UpstreamProtocol::Auto,
        Some(RawProtocol::Modern) => UpstreamProtocol::Modern,
        Some(RawProtocol::Legacy) => UpstreamProtocol::Legacy,
        Some(RawProtocol::Sse) => UpstreamProtocol::Sse,
    }
}

fn asks(raw: &[RawAsk]) -> CapabilityClass {
    raw.iter().fold(CapabilityClass::BASE, |asks, one| {
        asks.with(match one {
            RawAsk::Sampling => CapabilityClass::SAMPLING.with(CapabilityClass::SAMPLING_TOOLS),
            RawAsk::Elicitation => {
                CapabilityClass::ELICITATION_FORM.with(CapabilityClass::ELICITATION_URL)
            }
            RawAsk::ElicitationUrl => CapabilityClass::ELICITATION_URL,
            RawAsk::Roots => CapabilityClass::ROOTS,
        })
    })
}

fn upstream_rules(
    raw: &RawUpstream,
    defaults: &ConfigDefaults,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> UpstreamRules {
    let usual = UpstreamRules::default();
    let of_calls = raw.deadlines.map(RawUpstreamDeadlines::of_calls);
    let deadlines = config_defaults::deadlines(
        of_calls.as_ref(),
        defaults.deadlines,
        &path.key("deadlines"),
        report,
    );
    let validation = config_defaults::validation(raw.validation.as_ref(), defaults.validation);
    let mut tools = Vec::new();
    for (name, tool) in raw.tools.iter().flat_map(|tools| &tools.0) {
        let path = path.key("tools").key(name);
        let limits = path.key("deadlines");
        let own = tool
            .deadlines
            .as_ref()
            .map(|own| config_defaults::deadlines(Some(own), deadlines, &limits, report));
        let checks = tool
            .validation
            .as_ref()
            .map(|own| config_defaults::validation(Some(own), validation));
        let scopes = toolsets_check::scopes(
            tool.scopes.as_deref().unwrap_or_default(),
            &path.key("scopes"),
            report,
        );
        let safe_to_repeat = tool.safe_to_repeat.unwrap_or_default();
        let clean = tool.clean;
        tools.push((
            name.clone(),
            ToolRules {
                deadlines: own,
                validation: checks,
                scopes,
                clean,
                safe_to_repeat,
            },
        ));
    }
    if raw.poll.is_some_and(|Time(time)| time.as_millis() < 1000) {
        report.add(ConfigProblem::error(
            path.key("poll"),
            "must be at least 1s",
        ));
    }
    let walk = raw.walk.map_or(usual.walk, |walk| WalkLimits {
        pages: walk.pages.unwrap_or(usual.walk.pages),
        items: walk.items.unwrap_or(usual.walk.items),
        item_bytes: walk
            .item_bytes
            .map_or(usual.walk.item_bytes, |Size(size)| size),
    });
    if walk.pages == 0 || walk.items == 0 || walk.item_bytes == 0 {
        report.add(ConfigProblem::error(
            path.key("walk"),
            "must allow at least one page, one item and one byte",
        ));
    }
    UpstreamRules {
        deadlines,
        validation,
        tools,
        poll: raw.poll.map_or(usual.poll, |Time(time)| time),
        grace: raw.grace.map_or(usual.grace, |Time(time)| time),
        walk,
        trusted: matches!(raw.trust, Some(RawTrust::Trusted)),
        // Filled in with the files that the config names.
        secrets: None,
        results: raw.results.and_then(|results| {
            config_defaults::results(results, defaults, &path.key("results"), report)
        }),
    }
}

fn bounds(
    raw: Option<&RawUpstreamLimits>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> UpstreamBounds {
    let usual = UpstreamBounds::default();
    let Some(raw) = raw else { return usual };
    let path = path.key("limits");
    for (key, count, least) in [
        ("in_flight", raw.in_flight, 1),
        ("sessions", raw.sessions, 1),
        ("max_processes", raw.max_processes, 1),
        ("standing", raw.standing, 0),
    ] {
        check_count(count, least, &path.key(key), report);
    }
    if raw.max_reply.is_some_and(|Size(size)| size < 64 << 10) {
        report.add(ConfigProblem::error(
            path.key("max_reply"),
            "must be at least 64KiB",
        ));
    }
    UpstreamBounds {
        in_flight: raw.in_flight.unwrap_or(usual.in_flight),
        max_reply: raw.max_reply.map_or(usual.max_reply, |Size(size)| size),
        sessions: raw.sessions.unwrap_or(usual.sessions),
        session_idle: raw
            .session_idle
            .map_or(usual.session_idle, |Time(time)| time),
        standing: raw.standing.unwrap_or(usual.standing),
    }
}

fn transport(
    raw: RawUpstream,
    folder: &std::path::Path,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<TransportSettings> {
    let kinds: Vec<_> = [
        ("url", raw.url.is_some()),
        ("urls", raw.urls.is_some()),
        ("command", raw.command.is_some()),
    ]
    .into_iter()
    .filter_map(|(key, present)| present.then_some(key))
    .collect();
    match kinds[..] {
        [] => {
            if !report.has_error_under(path) {
                let problem =
                    ConfigProblem::error(path.clone(), "has neither `url`, `urls` nor `command`");
                report.add(problem.hint(
                    "write { url: http://host:port/mcp } or { command: program, args: [..] }",
                ));
            }
            None
        }
        ["command"] => stdio(raw, folder, path, report).map(TransportSettings::Stdio),
        [_] => http(raw, folder, path, report).map(TransportSettings::Http),
        [one, other, ..] => {
            let text = format!("has both `{one}` and `{other}`");
            report.add(ConfigProblem::error(path.clone(), text).hint("keep one"));
            None
        }
    }
}

fn report_misplaced(
    keys: &[(&str, bool)],
    what: &str,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    for (key, present) in keys {
        if *present {
            report.add(ConfigProblem::error(
                path.key(key),
                format!("has no effect for {what}"),
            ));
        }
    }
}

pub(super) fn http(
    raw: RawUpstream,
    folder: &std::path::Path,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<HttpUpstreamSettings> {
    let keys = [
        ("args", raw.args.is_some()),
        ("env", raw.env.is_some()),
        ("cwd", raw.cwd.is_some()),
        ("instances", raw.instances.is_some()),
        ("start", raw.start.is_some()),
        (
            "limits.max_processes",
            raw.limits
                .is_some_and(|limits| limits.max_processes.is_some()),
        ),
    ];
    report_misplaced(&keys, "a server behind a URL", path, report);
    let headers = headers(raw.headers, &path.key("headers"), report);
    let read_ca_file = |file: String| {
        CaFile::read(&folder.join(file))
            .map_err(|error| {
                report.add(ConfigProblem::error(path.key("ca_file"), error.to_string()))
            })
            .ok()
    };
    let ca_file = raw.ca_file.and_then(read_ca_file);
    let urls = upstream_urls_check::check(raw.url, raw.urls, path, report)?;
    let all = urls.all(path);
    let beside = OutboundContext {
        headers: !headers.is_empty() || report.has_error_under(&path.key("headers")),
        authorization: headers
            .iter()
            .any(|(name, _)| name == http::header::AUTHORIZATION),
        shared: matches!(raw.session, Some(RawSession::Shared)),
        in_the_clear: all
            .iter()
            .any(|(url, _)| url.scheme_str() == Some("http") && !is_local_url(url)),
    };
    let auth = outbound_check::check(raw.auth, beside, &path.key("auth"), report);
    let h2c = raw.h2c.unwrap_or(false);
    if h2c && all.iter().any(|(url, _)| url.scheme_str() == Some("https")) {
        report.add(ConfigProblem::error(
            path.key("h2c"),
            "is for http URLs only: over TLS, HTTP/2 is negotiated",
        ));
    }
    Some(HttpUpstreamSettings {
        url: urls.first,
        instances: urls.instances,
        headers,
        auth,
        ca_file,
        h2c,
    })
}

fn headers(
    raw: Option<OrderedMap<ConfigSecret>>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<(HeaderName, SecretHeader)> {
    let mut headers = Vec::new();
    for (name, value) in raw.unwrap_or_default().0 {
        let path = path.key(&name);
        placeholder::report_placeholder(&name, value.expose(), &path, report);
        match (
            name.parse::<HeaderName>(),
            HeaderValue::from_str(value.expose()),
        ) {
            (Ok(name), _) if OWN_HEADERS.contains(&name.as_str()) => {
                report.add(ConfigProblem::error(path, "is set by weir itself"));
            }
            (Ok(name), Ok(value)) => headers.push((name, SecretHeader::new(value))),
            (Err(_), _) => report.add(ConfigProblem::error(path, "is not a header name")),
            (_, Err(_)) => report.add(ConfigProblem::error(
                path,
                "has a value that is not allowed in a header",
            )),
        }
    }
    headers
}

fn stdio(
    raw: RawUpstream,
    folder: &std::path::Path,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<StdioUpstreamSettings> {
    let keys = [
        ("protocol", matches!(raw.protocol, Some(RawProtocol::Sse))),
        ("headers", raw.headers.is_some()),
        ("auth", raw.auth.is_some()),
        ("ca_file", raw.ca_file.is_some()),
        ("h2c", raw.h2c.is_some()),
    ];
    report_misplaced(&keys, "a server that weir starts", path, report);
    let command = raw.command?;
    if command.is_empty() {
        report.add(ConfigProblem::error(path.key("command"), "is empty"));
        return None;
    }
    if command.contains(' ') && raw.args.is_none() && !std::path::Path::new(&command).exists() {
        let problem =
            ConfigProblem::warning(path.key("command"), "has a space, and no shell splits it");
        report.add(problem.hint("write { command: program, args: [..] }"));
    }
    let cwd = raw.cwd.map(|cwd| folder.join(cwd));
    if cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) {
        report.add(ConfigProblem::error(path.key("cwd"), "is not a folder"));
    }
    let mut env = Vec::new();
    for (name, value) in raw.env.unwrap_or_default().0 {
        if name.is_empty() || name.contains(['=', '\0']) || value.expose().contains('\0') {
            report.add(ConfigProblem::error(
                path.key("env").key(&name),
                "is not the name of an environment variable",
            ));
        } else {
            placeholder::report_placeholder(
                &name,
                value.expose(),
                &path.key("env").key(&name),
                report,
            );
            env.push((name, SecretText::new(value.expose())));
        }
    }
    Some(StdioUpstreamSettings {
        command,
        args: raw.args.unwrap_or_default(),
        env,
        cwd,
        instances: match raw.instances {
            Some(RawInstances::One) => ChildInstances::One,
            Some(RawInstances::EachReplica) | None => ChildInstances::EachReplica,
        },
        max_processes: raw
            .limits
            .and_then(|limits| limits.max_processes)
            .unwrap_or(UpstreamSettings::DEFAULT_MAX_PROCESSES),
        start: raw.start.map_or(DEFAULT_START, |Time(time)| time),
    })
}
