//! The checks of a config, one function for each section. A check reports all problems and does not
//! stop at the first.

mod admin_check;
mod audit_check;
mod auth_check;
mod cluster_check;
pub(crate) mod config_defaults;
mod count_check;
mod default_endpoints;
mod endpoints_check;
mod forward_proxy_check;
mod limits_check;
mod listen_check;
mod mcp_servers_check;
mod names_check;
mod outbound_check;
mod own_address_check;
mod policy_check;
mod rates_check;
mod sealing_keys_check;
mod secrets_check;
mod store_check;
mod teams_check;
mod telemetry_check;
mod telemetry_variables;
mod toolsets_check;
mod upstream_urls_check;
mod upstreams_check;

use std::sync::Arc;
use std::time::Duration;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::env::Environment;
use weir_config_file::raw::{
    OrOff, RawConfig, RawIncludeErrors, RawLog, RawLogFormat, RawTeamFile, Time,
};
use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_front::FrontSettings;
use weir_policy::rules::EndpointPolicies;
use weir_telemetry::{LogFormat, LogPlan};

use crate::checked_config::{CatalogPlan, Config, IncludeErrors, SourceDigest};
use crate::config_part::{ConfigPart, EarlierFiles};
use crate::main_config::MainConfig;
use crate::team_grants::{self, TeamGrant};
use crate::waivers::Waivers;
pub use admin_check::DEFAULT_ADMIN_LISTEN;
pub(crate) use config_defaults::ConfigDefaults;
pub(crate) use default_endpoints::{add_to_default_endpoints, default_endpoints};
pub use own_address_check::OWN_ADDRESS;
use own_address_check::OwnAddresses;

/// The default of `drain`. Long enough for most calls, and shorter than the grace period of process
/// managers (30 s is usual).
const DEFAULT_DRAIN: Duration = Duration::from_secs(25);
/// The default of `first_list_wait`. A client that starts weir and asks at once sees the tools of
/// healthy upstreams, and a person does not notice two seconds.
const DEFAULT_FIRST_LIST_WAIT: Duration = Duration::from_secs(2);
/// The default of `change_window`. A storm of changes at an upstream becomes at most two
/// notifications a second to each client.
const DEFAULT_CHANGE_WINDOW: Duration = Duration::from_millis(500);

/// Checks the main file, to which the teams' files are added before [`complete`]. Its settings can
/// be used only if the report has no errors.
///
/// Relative paths in it start at `folder`.
pub(crate) fn check_main_file(
    raw: RawConfig,
    folder: &std::path::Path,
    environment: Environment<'_>,
    one_host: bool,
    report: &mut ConfigReport,
) -> MainConfig {
    let mut defaults = ConfigDefaults {
        one_host,
        ..ConfigDefaults::check(&raw, folder, report)
    };
    let mut front = listen_check::check(&raw, folder, report);
    // In front of one host weir has no listener.
    if !one_host {
        let endpoints = raw.endpoints.iter().flat_map(|endpoints| &endpoints.0);
        let paths = endpoints.map(|(path, _)| path.clone()).collect();
        defaults.own_addresses = OwnAddresses::of(&front, paths);
    }
    let keys = sealing_keys_check::keys(&raw, report);
    let store = store_check::check(&raw, folder, report);
    let auth = auth_check::check(&raw, &mut front, report);
    let waivers = Waivers::of(&raw, report);
    let admin = admin_check::check(
        raw.admin.as_ref(),
        front.listen,
        !auth.issuers.is_empty(),
        report,
    );
    let listeners = [Some(front.listen), admin.as_ref().map(|plan| plan.listen)];
    let cluster = cluster_check::check(&raw, listeners, report);
    let (catalog, log, drain) = (
        catalog(&raw, report),
        log(raw.log.as_ref(), report),
        drain(raw.drain, &mut front, report),
    );
    let sessions = limits_check::sessions(raw.limits.as_ref(), report);
    (
        front.limits.session.sessions,
        front.limits.session.sessions_per_principal,
    ) = (sessions.total, sessions.per_principal);
    let replays = limits_check::replays(raw.limits.as_ref(), report);
    let parked = limits_check::parked(raw.limits.as_ref(), report);
    let hold = limits_check::hold(raw.limits.as_ref(), report);
    let rates = rates_check::check(OrOff::into_section(raw.rates), report);
    let audit = audit_check::check(OrOff::into_section(raw.audit), folder, report);
    let telemetry = telemetry_check::check(raw.telemetry, folder, environment, report);
    let forward_proxy = forward_proxy_check::check(raw.forward_proxy, environment, report);
    let include_errors = include_errors(raw.include.as_deref(), raw.include_errors, report);
    let own_endpoints = raw.endpoints.is_some();
    let teams = team_grants::check(raw.teams, raw.include.is_some(), report);
    let mut part = ConfigPart::default();
    let common = policy_check::read_policy_files(
        raw.policy.as_ref(),
        folder,
        &mut part.files,
        &ConfigPath::at("policy"),
        report,
    );
    upstreams_check::check(raw.upstreams, &defaults, &[], &mut part, report);
    mcp_servers_check::check(raw.mcp_servers, &defaults, &[], &mut part, report);
    if let Some(endpoints) = raw.endpoints {
        endpoints_check::check(
            endpoints,
            &defaults,
            EarlierFiles::default(),
            &mut part,
            report,
        );
    }
    let config = Config {
        front,
        auth,
        admin,
        upstreams: part.upstreams,
        endpoints: part.endpoints,
        catalog,
        sessions,
        memory: limits_check::memory(raw.limits.as_ref(), report),
        replays,
        parked,
        hold,
        rates,
        store,
        cluster,
        keys,
        drain,
        log,
        // Set by `complete`.
        names_endpoints: own_endpoints,
        rules: Arc::new(EndpointPolicies::default()),
        audit,
        telemetry,
        forward_proxy,
        team_files: Vec::new(),
        include_errors,
        waivers,
        source: SourceDigest::default(),
    };
    MainConfig {
        config,
        defaults,
        include: raw.include,
        teams,
        common,
        endpoint_rules: part.endpoint_rules,
        files: part.files,
        own_endpoints,
        has_default_endpoint: false,
    }
}

/// Completes the config of all files: the default endpoints, and the policies of all endpoints.
pub(crate) fn complete(main: MainConfig) -> Config {
    let mut config = main.config;
    let names_none = config.endpoints.is_empty();
    config.names_endpoints = main.own_endpoints || !(main.has_default_endpoint || names_none);
    if !main.own_endpoints && names_none {
        config.endpoints = default_endpoints(&[], &main.defaults);
    }
    config.rules = policy_check::policy_set(&config, main.common, &main.endpoint_rules);
    if let Some(oauth) = &mut config.front.oauth {
        let scopes = |endpoint: &Endpoint| {
            let scopes = config.rules.scopes(&endpoint.id).to_vec();
            (endpoint.id.clone(), scopes)
        };
        oauth.scopes = config.endpoints.iter().map(scopes).collect();
    }
    config
}

/// Checks `include` and `include_errors`.
fn include_errors(
    include: Option<&str>,
    raw: Option<RawIncludeErrors>,
    report: &mut ConfigReport,
) -> IncludeErrors {
    if include == Some("") {
        report.add(
            ConfigProblem::error(ConfigPath::at("include"), "is empty")
                .hint("name a folder, or remove the key"),
        );
    }
    if include.is_none() && raw.is_some() {
        let problem = ConfigProblem::error(
            ConfigPath::at("include_errors"),
            "has no effect without `include`",
        );
        report.add(problem.hint("write include: teams, or remove the key"));
    }
    match raw {
        None | Some(RawIncludeErrors::LeaveOut) => IncludeErrors::LeaveOut,
        Some(RawIncludeErrors::RefuseStart) => IncludeErrors::RefuseStart,
    }
}

/// Checks a team's file against its rights and the files read before.
pub(crate) fn check_team_file(
    raw: RawTeamFile,
    grant: &TeamGrant,
    defaults: &ConfigDefaults,
    earlier: EarlierFiles<'_>,
    report: &mut ConfigReport,
) -> ConfigPart {
    let mut part = ConfigPart {
        waivers: Waivers::of_team(&raw, report),
        ..ConfigPart::default()
    };
    let mut judged = ConfigReport::default();
    teams_check::check_rights(&raw, grant, defaults, earlier, &mut judged);
    let refused = judged.has_errors();
    report.append(judged);
    if refused {
        // The file contributes no settings, and no file that it names is opened.
        return part;
    }
    upstreams_check::check(
        raw.upstreams,
        defaults,
        earlier.upstreams,
        &mut part,
        report,
    );
    mcp_servers_check::check(
        raw.mcp_servers,
        defaults,
        earlier.upstreams,
        &mut part,
        report,
    );
    if let Some(endpoints) = raw.endpoints {
        endpoints_check::check(endpoints, defaults, earlier, &mut part, report);
    }
    part
}

/// Checks that need all files, of a config without errors.
pub(crate) fn check_whole(config: &Config) -> ConfigReport {
    let mut report = ConfigReport::default();
    rates_check::check_targets_exist(config, &mut report);
    names_check::check(config, &mut report);
    default_endpoints::check_sse_paths(config, &mut report);
    if config.upstreams.is_empty() {
        let problem = ConfigProblem::warning(
            ConfigPath::at("upstreams"),
            "no upstreams are configured: every list will be empty",
        );
        report.add(
            problem.hint("add a server: upstreams: { files: { url: http://127.0.0.1:3001/mcp } }"),
        );
    }
    for plan in &config.upstreams {
        let id = &plan.settings.id;
        let used = config
            .endpoints
            .iter()
            .any(|endpoint| match &endpoint.mode {
                EndpointMode::Aggregate { upstreams, .. } => upstreams.contains(id),
                EndpointMode::Transparent(one) => one == id,
            });
        if !used {
            report.add(
                ConfigProblem::warning(
                    ConfigPath::at("upstreams").key(id),
                    "no endpoint shows this upstream",
                )
                .hint("add it to one under `endpoints`"),
            );
        }
    }
    report
}

fn catalog(raw: &RawConfig, report: &mut ConfigReport) -> CatalogPlan {
    let window = check_positive(raw.change_window, "change_window", report);
    CatalogPlan {
        // Zero is valid here: the list is answered at once with the upstreams that are ready.
        first_list_wait: raw
            .first_list_wait
            .map_or(DEFAULT_FIRST_LIST_WAIT, |time| time.0),
        change_window: window.unwrap_or(DEFAULT_CHANGE_WINDOW),
    }
}

fn log(raw: Option<&RawLog>, report: &mut ConfigReport) -> LogPlan {
    let Some(raw) = raw else {
        return LogPlan::default();
    };
    let format = match raw.format {
        None | Some(RawLogFormat::Auto) => LogFormat::Auto,
        Some(RawLogFormat::Human) => LogFormat::Human,
        Some(RawLogFormat::Json) => LogFormat::Json,
    };
    if let Some(Err(why)) = raw.level.as_deref().map(weir_telemetry::check_filter) {
        report.add(
            ConfigProblem::error(ConfigPath::at("log.level"), why)
                .hint("write info, debug, or info,weir_upstream=debug"),
        );
    }
    LogPlan {
        format,
        filter: raw.level.clone(),
    }
}

/// Returns the longest drain. An idle connection alone must not last until its end, when running
/// calls are cancelled.
fn drain(raw: Option<Time>, front: &mut FrontSettings, report: &mut ConfigReport) -> Duration {
    let drain = check_positive(raw, "drain", report).unwrap_or(DEFAULT_DRAIN);
    let idle = &mut front.limits.listener.drain_idle;
    *idle = (*idle).min(drain / 2);
    drain
}

/// Returns a time that must not be zero.
fn check_positive(time: Option<Time>, path: &str, report: &mut ConfigReport) -> Option<Duration> {
    let Time(time) = time?;
    if time.is_zero() {
        report.add(ConfigProblem::error(
            ConfigPath::at(path),
            "must not be zero",
        ));
    }
    Some(time)
}
