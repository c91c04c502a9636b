//! The checked config: the settings of each part of weir.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use weir_audit::AuditPlan;
use weir_cluster::ClusterSettings;
use weir_core::Endpoint;
use weir_core::endpoint::UpstreamRules;
use weir_core::hold::HoldLimits;
use weir_policy::rules::EndpointPolicies;
use weir_redis_store::RedisSettings;
use weir_store::{ParkingCaps, RecordCaps, ReplayCaps};
use weir_system::on_this_machine;
use weir_telemetry::{LogPlan, TelemetryPlan};
use weir_upstream::{ForwardProxy, TransportSettings};

use crate::admin_plan::AdminPlan;
use crate::team_files::TeamFile;
use crate::waivers::Waivers;

/// A checked config: the settings of each part of weir.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The client side.
    pub front: weir_front::FrontSettings,
    /// The authentication of clients.
    pub auth: weir_policy::settings::VerifierSettings,
    /// The operators' listener and credentials. `None` if that listener is off.
    pub admin: Option<AdminPlan>,
    /// The upstreams, in config order.
    pub upstreams: Vec<UpstreamPlan>,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// True if a file lists endpoints. False if the default ones are served.
    pub(crate) names_endpoints: bool,
    /// Waits and windows of the catalog.
    pub catalog: CatalogPlan,
    /// The bound on the memory of the process. Absent: nine tenths of its control group's limit.
    pub memory: Option<u64>,
    /// The bounds on legacy sessions.
    pub sessions: RecordCaps,
    /// The bounds on the stream events kept for legacy clients that lose their connection.
    pub replays: ReplayCaps,
    /// The bounds on calls that wait for input, in number and time.
    pub parked: ParkingCaps,
    /// The bounds on large results that are held.
    pub hold: HoldLimits,
    /// The rate limits and quotas of clients.
    pub rates: weir_policy::limit::LimitSettings,
    /// The store of sessions.
    pub store: StorePlan,
    /// The listener for other replicas. Present exactly if the store is shared.
    pub cluster: Option<ClusterSettings>,
    /// Sealing keys, newest first. An empty list means a random key.
    pub keys: Vec<SealingKey>,
    /// The time that running calls have to end when weir stops.
    pub drain: Duration,
    /// The format and filter of the log.
    pub log: LogPlan,
    /// The policies of all endpoints.
    pub rules: Arc<EndpointPolicies>,
    /// The settings of the audit log. Absent: the log only.
    pub audit: Option<AuditPlan>,
    /// The settings of metrics and traces.
    pub telemetry: TelemetryPlan,
    /// The forward proxy of weir's own requests.
    pub forward_proxy: Option<Arc<ForwardProxy>>,
    /// The files of `include`, each with the version that is served.
    pub team_files: Vec<TeamFile>,
    /// The behaviour at a start if one of them has errors.
    pub include_errors: IncludeErrors,
    /// The protections that the config's files give up explicitly.
    pub waivers: Waivers,
    /// The digest of the files that the config was read from. It is not part of equality.
    pub source: SourceDigest,
}

/// A time longer than the life of any process.
const ENDLESS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The longest drain if one MCP client waits for the end of the process.
const SHORT_DRAIN: Duration = Duration::from_secs(5);
/// The time that the first list of an MCP client waits for upstreams that are still starting. The
/// client started them with weir, and many clients ask once; SDKs give up after 60 s.
const HOST_LIST_WAIT: Duration = Duration::from_secs(10);

impl Config {
    /// Returns the `scheme://host[:port]` that clients use: the public URL, or else the listener's
    /// address as a program on the same machine reaches it.
    pub fn public_base(&self, listener: SocketAddr) -> String {
        match &self.front.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => implied_base(&self.front, on_this_machine(listener)),
        }
    }

    /// Reports if some upstream exchanges callers' tokens for its own.
    pub fn exchanges_tokens(&self) -> bool {
        let exchanges = |transport: &TransportSettings| match transport {
            TransportSettings::Http(http) => http
                .auth
                .as_ref()
                .is_some_and(|auth| auth.exchange.is_some()),
            TransportSettings::Stdio(_) => false,
        };
        self.upstreams
            .iter()
            .any(|plan| exchanges(&plan.settings.transport))
    }

    /// Reports if clients need an API key, because no authorization server gives them tokens.
    pub fn requires_api_keys(&self) -> bool {
        self.auth.required && self.auth.issuers.is_empty() && !self.auth.api_keys.is_empty()
    }

    /// Returns this config as served to one client inside the process: without listeners and other
    /// replicas, and with a session that lasts as long as the process. The client waits for the
    /// end, so a drain is short.
    pub fn in_memory(&self) -> Self {
        let mut served = self.clone();
        served.admin = None;
        served.store = StorePlan::Memory;
        served.cluster = None;
        served.front.tls = None;
        served.front.limits.session.session_idle = ENDLESS;
        served.front.limits.session.session_age = ENDLESS;
        served.drain = served.drain.min(SHORT_DRAIN);
        served.catalog.first_list_wait = served.catalog.first_list_wait.max(HOST_LIST_WAIT);
        served
    }

    /// Returns this config as served at `bound`. Tokens are issued for the URL of weir. If that URL
    /// follows from `listen`, and `listen` has port 0, the URL gets the port that the system chose.
    pub fn served_at(self: &Arc<Self>, bound: SocketAddr) -> Arc<Self> {
        let Self { front, auth, .. } = &**self;
        if front.listen.port() != 0 || front.public_url.is_some() || auth.base.is_empty() {
            return self.clone();
        }
        let base = implied_base(front, SocketAddr::new(front.listen.ip(), bound.port()));
        let mut served = (**self).clone();
        if let Some(oauth) = &mut served.front.oauth {
            oauth.base.clone_from(&base);
        }
        served.auth.base = base;
        Arc::new(served)
    }
}

impl Config {
    /// Returns the limiter's settings. An upstream's concurrency permits are its own `in_flight`:
    /// calls queue for them fairly by principal, before the upstream's own bound would refuse calls
    /// of any principal.
    #[must_use]
    pub fn limit_settings(&self) -> weir_policy::limit::LimitSettings {
        let mut rates = self.rates.clone();
        let places = self
            .upstreams
            .iter()
            .map(|plan| (plan.settings.id.clone(), plan.settings.bounds.in_flight));
        rates.concurrency.upstreams = places.collect();
        rates
    }
}

/// Returns the URL of weir if the config has no `public_url`.
pub(crate) fn implied_base(front: &weir_front::FrontSettings, listen: SocketAddr) -> String {
    let scheme = if front.tls.is_some() { "https" } else { "http" };
    without_default_port(&format!("{scheme}://{listen}")).to_owned()
}

/// Removes the default port of the scheme from an origin. Clients that normalize URLs leave it out
/// (RFC 3986, 6.2.3), and would not find the URL of their server in the metadata.
pub(crate) fn without_default_port(origin: &str) -> &str {
    let port = match origin.split_once(':') {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => ":80",
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => ":443",
        _ => return origin,
    };
    origin.strip_suffix(port).unwrap_or(origin)
}

/// The digest of a config's files. All digests compare equal, so that two configs with the same
/// settings are equal even if their files differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceDigest(pub Option<[u8; 32]>);

impl SourceDigest {
    /// Returns the SHA-256 of the names and texts of the files.
    #[must_use]
    pub fn digest(&self) -> Option<[u8; 32]> {
        self.0
    }

    /// Returns the first 16 hex digits of the digest. Replicas announce it, so that a difference
    /// between their configs shows. It covers the files as they are written, with the secret files
    /// that they name. Values of environment variables are not part of it: some differ on purpose,
    /// such as a replica's own address.
    #[must_use]
    pub fn short(&self) -> Option<String> {
        self.0.map(|digest| HEXLOWER.encode(&digest[..8]))
    }
}

impl PartialEq for SourceDigest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One upstream: its connection settings, and its rules for the catalog and the router.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamPlan {
    /// The connection settings.
    pub settings: weir_upstream::UpstreamSettings,
    /// Deadlines, validation, and limits of list walks.
    pub rules: UpstreamRules,
}

/// Waits and windows of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogPlan {
    /// The time that the first list after a start waits for upstreams that have not answered.
    pub first_list_wait: Duration,
    /// The shortest time between two change notifications to one client.
    pub change_window: Duration,
}

/// The behaviour at a start if a file of `include` has errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IncludeErrors {
    /// The start serves all other files.
    #[default]
    LeaveOut,
    /// The start is refused.
    RefuseStart,
}

/// The store of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StorePlan {
    /// The memory of the process.
    #[default]
    Memory,
    /// A Redis or Valkey that replicas share.
    Redis(RedisSettings),
}

/// A sealing key of the config.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey {
    /// The id that identifies the key in sealed data.
    pub id: u8,
    /// The 32 bytes of the key.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealingKey({}, <secret>)", self.id)
    }
}
