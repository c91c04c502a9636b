//! The config as written in the file: every key is optional, and no value is checked yet. The JSON
//! Schema is generated from these types.

mod or_off;
mod ordered_map;
mod raw_admin;
mod raw_audit;
mod raw_auth;
mod raw_cluster;
mod raw_endpoint;
mod raw_forward_proxy;
mod raw_key;
mod raw_limits;
mod raw_outbound;
mod raw_policy;
mod raw_rates;
mod raw_store;
mod raw_teams;
mod raw_telemetry;
mod raw_toolsets;
mod raw_upstream;
mod raw_upstream_url;
mod units;

pub(crate) use or_off::BOOLEAN_WORDS;
pub use or_off::OrOff;
pub use ordered_map::OrderedMap;
pub use raw_admin::{RawAdmin, RawAdminToken, RawMetricsAccess};
pub use raw_audit::{RawArguments, RawAudit, RawAuditFile, RawOnFailure, RawOtlp, RawRotate};
pub use raw_auth::{RawApiKey, RawAuth, RawIntrospection, RawIssuer, RawSubject};
pub use raw_cluster::RawCluster;
pub use raw_endpoint::{RawAlphabet, RawEndpoint, RawNaming, RawPage, RawPrefix};
pub use raw_forward_proxy::{RawForwardProxy, RawProxyKeys};
pub use raw_key::RawKey;
pub use raw_limits::RawLimits;
pub use raw_outbound::{RawOutbound, RawOutboundMode, RawSecretPlace, RawSubjectToken};
pub use raw_policy::RawPolicy;
pub use raw_rates::{
    Frequency, RawConcurrency, RawLimit, RawRate, RawRates, RawToolLimit, RawUncounted,
};
pub use raw_store::{MEMORY_STORE, RawSharedStore, RawStore, RawStoreKind, RawStoreUrls};
pub use raw_teams::{RawConsent, RawTeam};
pub use raw_telemetry::{RawPush, RawPushProtocol, RawTelemetry};
pub use raw_toolsets::{RawHints, RawToolset, RawTrust};
pub use raw_upstream::{
    RawAsk, RawCheck, RawDeadlines, RawInstances, RawMcpServer, RawOversized, RawProtocol,
    RawResults, RawSecretArguments, RawSecretResults, RawSecrets, RawSession, RawUpstream,
    RawUpstreamDeadlines, RawUpstreamLimits, RawValidation,
};
pub use raw_upstream_url::{RawUpstreamUrl, RawWeightedUrl};
pub use units::{Size, Time};

use schemars::JsonSchema;
use serde::Deserialize;

/// weir's config. All keys but the upstreams have a default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "weir.yaml")]
pub struct RawConfig {
    /// The `address:port` that clients connect to. Default `127.0.0.1:8080`.
    // An open address has a check of its own. Absent is loopback.
    #[schemars(extend("x-protection" = "none"))]
    pub listen: Option<String>,
    /// The `scheme://host[:port]` that clients use to reach weir. Default: `http(s)://` and the
    /// address of `listen`.
    #[schemars(extend("x-protection" = "none"))]
    pub public_url: Option<String>,
    /// The listener for operators: health, metrics, the status page and the admin API.
    pub admin: Option<RawAdmin>,
    /// The store of sessions: `memory` (the default), or a URL or map of the Redis or Valkey that
    /// several replicas share (docs/replicas.md). A shared store needs `keys` and `cluster`.
    #[schemars(extend("x-protection" = "none below"))]
    pub store: Option<RawStore>,
    /// The listener for other replicas. It needs a shared `store`.
    #[schemars(extend("x-protection" = "none below"))]
    pub cluster: Option<RawCluster>,
    /// Sealing keys, newest first: the first seals, all open. Absent: a random key at every start.
    /// Replicas with a shared `store` need the same keys; a new first key seals once all of them
    /// have it (docs/replicas.md).
    #[schemars(extend("x-protection" = "none below"))]
    pub keys: Option<Vec<RawKey>>,
    /// Serves TLS with these files. They are read again when they change. A reload removes TLS
    /// only if the file has the word `off`.
    pub tls: Option<OrOff<RawTls>>,
    /// The format and level of the log.
    #[schemars(extend("x-protection" = "none below"))]
    pub log: Option<RawLog>,
    /// The time that running calls have to end when weir stops. Default `25s`.
    #[schemars(extend("x-protection" = "none"))]
    pub drain: Option<Time>,
    /// A folder with further files, one per team, each with `upstreams`, `mcpServers` and
    /// `endpoints` of its own. Each file has the rights that `teams` grants it, and no others.
    #[schemars(extend("x-protection" = "none"))]
    pub include: Option<String>,
    /// The rights of the files in `include`, by file name without the extension. A file without an
    /// entry here has no rights.
    #[schemars(extend("x-protection" = "none below"))]
    pub teams: Option<OrderedMap<RawTeam>>,
    /// The behaviour at a start if a file in `include` has errors. Default `leave_out`. A reload
    /// keeps the file's last good version in both cases.
    #[schemars(extend("x-protection" = "none"))]
    pub include_errors: Option<RawIncludeErrors>,
    /// The upstreams, by id: a lower-case letter, then letters, digits and `-`, at most 24.
    // A call that cannot be made exposes no data.
    #[schemars(extend("x-protection" = "none"))]
    pub upstreams: Option<OrderedMap<RawUpstream>>,
    /// The upstreams in the format of MCP clients (docs/migrating.md). Keys that are not valid ids
    /// are changed into valid ones. Unknown keys are ignored.
    #[serde(rename = "mcpServers")]
    #[schemars(extend("x-protection" = "none below"))]
    pub mcp_servers: Option<OrderedMap<RawMcpServer>>,
    /// The paths that clients use. Absent: `/mcp` with all upstreams, and `/mcp/<id>` for each
    /// upstream alone. Upstreams of a team's file get these paths as far as `teams` grants them.
    pub endpoints: Option<OrderedMap<RawEndpoint>>,
    /// The authentication of clients.
    pub auth: Option<RawAuth>,
    /// The rules that decide which callers may see and call which tools. Absent or `off`: every
    /// admitted caller sees and calls all tools. A reload removes rules only if the file has the
    /// word `off`.
    pub policy: Option<OrOff<RawPolicy>>,
    /// Browser access from other origins (CORS).
    #[schemars(extend("x-protection" = "none below"))]
    pub cors: Option<RawCors>,
    /// Further names that clients may use in `Host`: `name` or `name:port`.
    #[schemars(extend("x-protection" = "none"))]
    pub allowed_hosts: Option<Vec<String>>,
    /// Addresses or networks of proxies whose `X-Forwarded-For` is trusted.
    #[schemars(extend("x-protection" = "none"))]
    pub trusted_proxies: Option<Vec<String>>,
    /// Requires or waives a session for clients of the legacy revisions. Default `required`.
    #[schemars(extend("x-protection" = "none"))]
    pub legacy_sessions: Option<RawLegacySessions>,
    /// Serves HTTP+SSE, the transport of 2024-11-05, beside each endpoint, at `<path>/sse`. Default
    /// true.
    #[schemars(extend("x-protection" = "none"))]
    pub http_sse: Option<bool>,
    /// The name and title that weir reports to clients.
    #[schemars(extend("x-protection" = "none below"))]
    pub server: Option<RawServer>,
    /// The time that the first list after a start waits for upstreams without an answer so far.
    /// Default `2s`.
    #[schemars(extend("x-protection" = "none"))]
    pub first_list_wait: Option<Time>,
    /// The shortest time between two change notifications to one client. Default `500ms`.
    #[schemars(extend("x-protection" = "none"))]
    pub change_window: Option<Time>,
    /// The forward proxy of weir's own requests, to upstreams, authorization servers and collectors:
    /// `environment` for the proxy of `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, or a map
    /// (docs/deploying.md). Absent: no proxy. Servers on this machine are reached directly. A change
    /// takes effect at a restart.
    #[schemars(extend("x-protection" = "none below"))]
    pub forward_proxy: Option<RawForwardProxy>,
    /// Time limits of tool calls and of weir's own requests, for all upstreams.
    #[schemars(extend("x-protection" = "none below"))]
    pub deadlines: Option<RawUpstreamDeadlines>,
    /// The size of list pages, on all endpoints.
    #[schemars(extend("x-protection" = "none below"))]
    pub page: Option<RawPage>,
    /// The naming of tools, on all endpoints with several upstreams.
    #[schemars(extend("x-protection" = "none below"))]
    pub naming: Option<RawNaming>,
    /// Schema validation, for all upstreams.
    pub validation: Option<RawValidation>,
    /// Limits on the resources that clients may use.
    #[schemars(extend("x-protection" = "none below"))]
    pub limits: Option<RawLimits>,
    /// Rate limits and quotas of clients. A reload removes all of them only if the file has the
    /// word `off`.
    pub rates: Option<OrOff<RawRates>>,
    /// The audit log. A reload removes it only if the file has the word `off`.
    pub audit: Option<OrOff<RawAudit>>,
    /// Metrics and traces, and the collector that they are sent to.
    #[schemars(extend("x-protection" = "none below"))]
    pub telemetry: Option<RawTelemetry>,
    /// Protections that the running config has and this one gives up, by the paths that a refused
    /// reload names: `rates.principal`. The path of a section covers all keys in it. A protection
    /// with an `off` of its own (`policy: off`) is given up by that word alone.
    #[schemars(extend("x-protection" = "none"))]
    pub allow_weaker: Option<Vec<String>>,
    /// The schema of the file, for editors. weir ignores it.
    #[serde(rename = "$schema")]
    #[schemars(extend("x-protection" = "none"))]
    pub schema: Option<String>,
}

/// The behaviour at a start if a file in `include` has errors.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawIncludeErrors {
    /// weir serves all other files. The paths of this file answer 503.
    LeaveOut,
    /// weir does not start.
    RefuseStart,
}

/// A team's file in the `include` folder.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTeamFile {
    /// The team's upstreams, by id.
    pub upstreams: Option<OrderedMap<RawUpstream>>,
    /// The team's upstreams in the format of MCP clients.
    #[serde(rename = "mcpServers")]
    pub mcp_servers: Option<OrderedMap<RawMcpServer>>,
    /// The team's endpoints, by path.
    pub endpoints: Option<OrderedMap<RawEndpoint>>,
    /// Protections of the team's last version that this one gives up.
    pub allow_weaker: Option<Vec<String>>,
    /// The schema of the file, for editors. weir ignores it.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
}

/// TLS files, in PEM.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTls {
    /// The certificate chain, leaf first.
    pub cert: Option<String>,
    /// The private key.
    pub key: Option<String>,
    /// The certificate authorities that may sign client certificates, in PEM.
    pub client_ca: Option<String>,
    /// Requires a client certificate, or makes it optional. Default `optional`: clients without a
    /// certificate need other credentials.
    pub client_auth: Option<RawClientAuth>,
}

/// The need for a client certificate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawClientAuth {
    /// Clients without a certificate need other credentials.
    Optional,
    /// A connection without a certificate is refused.
    Required,
}

/// The format and level of the log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawLog {
    /// The format of log lines. Default `auto`: human-readable on a terminal, JSON otherwise.
    pub format: Option<RawLogFormat>,
    /// A level (`info`, the default) or a filter such as `info,weir_upstream=debug`. `RUST_LOG` and
    /// `--log` take precedence.
    pub level: Option<String>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawLogFormat {
    /// Human-readable on a terminal, JSON otherwise.
    Auto,
    /// Human-readable.
    Human,
    /// One JSON object per line.
    Json,
}

/// Browser access from other origins (CORS).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawCors {
    /// Allowed origins: `scheme://host[:port]`.
    pub origins: Option<Vec<String>>,
}

/// The need for a session of clients of the legacy revisions.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawLegacySessions {
    /// A request without a session is refused.
    Required,
    /// A request without a session is served on its own.
    Optional,
}

/// The name and title that weir reports to clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawServer {
    /// The name of the server. Default `weir`.
    pub name: Option<String>,
    /// The display name of the server.
    pub title: Option<String>,
}
