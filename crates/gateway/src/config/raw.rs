//! The config as written in the file: every key is optional, and no value is checked yet. The JSON
//! Schema is generated from these types.

pub(crate) mod or_off;
pub(crate) mod ordered_map;
pub(crate) mod raw_admin;
pub(crate) mod raw_audit;
pub(crate) mod raw_auth;
pub(crate) mod raw_endpoint;
pub(crate) mod raw_key;
mod raw_limits;
pub(crate) mod raw_outbound;
pub(crate) mod raw_policy;
pub(crate) mod raw_rates;
pub(crate) mod raw_teams;
pub(crate) mod raw_telemetry;
pub(crate) mod raw_toolsets;
pub(crate) mod raw_upstream;
pub(crate) mod units;

pub(crate) use or_off::OrOff;
pub(crate) use ordered_map::OrderedMap;
pub(crate) use raw_admin::RawAdmin;
pub(crate) use raw_audit::RawAudit;
pub(crate) use raw_auth::RawAuth;
pub(crate) use raw_endpoint::{RawEndpoint, RawNaming, RawPage};
pub(crate) use raw_key::RawKey;
pub(crate) use raw_limits::RawLimits;
pub(crate) use raw_policy::RawPolicy;
pub(crate) use raw_rates::RawRates;
pub(crate) use raw_teams::RawTeam;
pub(crate) use raw_telemetry::RawTelemetry;
pub(crate) use raw_toolsets::{RawToolset, RawTrust};
pub(crate) use raw_upstream::{
    RawDeadlines, RawMcpServer, RawUpstream, RawUpstreamDeadlines, RawValidation,
};
pub(crate) use units::{Size, Time};

use schemars::JsonSchema;
use serde::Deserialize;

/// weir's config. All keys but the upstreams have a default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "weir.yaml")]
pub(crate) struct RawConfig {
    /// The `address:port` that clients connect to. Default `127.0.0.1:8080`.
    pub(crate) listen: Option<String>,
    /// The `scheme://host[:port]` that clients use to reach weir. Default: `http(s)://` and the
    /// address of `listen`.
    pub(crate) public_url: Option<String>,
    /// The listener for operators: health, metrics, the status page and the admin API.
    pub(crate) admin: Option<RawAdmin>,
    /// The store of sessions. This version supports `memory` (the default) only.
    pub(crate) store: Option<String>,
    /// Sealing keys, newest first: the first seals, all open. Absent: a random key at every start.
    pub(crate) keys: Option<Vec<RawKey>>,
    /// Serves TLS with these files. They are read again when they change. A reload removes TLS
    /// only if the file has the word `off`.
    pub(crate) tls: Option<OrOff<RawTls>>,
    /// The format and level of the log.
    pub(crate) log: Option<RawLog>,
    /// The time that running calls have to end when weir stops. Default `25s`.
    pub(crate) drain: Option<Time>,
    /// A folder with further files, one per team, each with `upstreams`, `mcpServers` and
    /// `endpoints` of its own. Each file has the rights that `teams` grants it, and no others.
    pub(crate) include: Option<String>,
    /// The rights of the files in `include`, by file name without the extension. A file without an
    /// entry here has no rights.
    pub(crate) teams: Option<OrderedMap<RawTeam>>,
    /// The behaviour at a start if a file in `include` has errors. Default `leave_out`. A reload
    /// keeps the file's last good version in both cases.
    pub(crate) include_errors: Option<RawIncludeErrors>,
    /// The upstreams, by id: a lower-case letter, then letters, digits and `-`, at most 24.
    pub(crate) upstreams: Option<OrderedMap<RawUpstream>>,
    /// The upstreams in the format of MCP clients (docs/migrating.md). Keys that are not valid ids
    /// are changed into valid ones. Unknown keys are ignored.
    #[serde(rename = "mcpServers")]
    pub(crate) mcp_servers: Option<OrderedMap<RawMcpServer>>,
    /// The paths that clients use. Absent: `/mcp` with all upstreams, and `/mcp/<id>` for each
    /// upstream alone. Upstreams of a team's file get these paths as far as `teams` grants them.
    pub(crate) endpoints: Option<OrderedMap<RawEndpoint>>,
    /// The authentication of clients.
    pub(crate) auth: Option<RawAuth>,
    /// The rules that decide which callers may see and call which tools. Absent or `off`: every
    /// admitted caller sees and calls all tools. A reload removes rules only if the file has the
    /// word `off`.
    pub(crate) policy: Option<OrOff<RawPolicy>>,
    /// Browser access from other origins (CORS).
    pub(crate) cors: Option<RawCors>,
    /// Further names that clients may use in `Host`: `name` or `name:port`.
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// Addresses or networks of proxies whose `X-Forwarded-For` is trusted.
    pub(crate) trusted_proxies: Option<Vec<String>>,
    /// Requires or waives a session for clients of the legacy revisions. Default `required`.
    pub(crate) legacy_sessions: Option<RawLegacySessions>,
    /// Serves HTTP+SSE, the transport of 2024-11-05, beside each endpoint, at `<path>/sse`. Default
    /// true.
    pub(crate) http_sse: Option<bool>,
    /// The name and title that weir reports to clients.
    pub(crate) server: Option<RawServer>,
    /// The time that the first list after a start waits for upstreams without an answer so far.
    /// Default `2s`.
    pub(crate) first_list_wait: Option<Time>,
    /// The shortest time between two change notifications to one client. Default `500ms`.
    pub(crate) change_window: Option<Time>,
    /// Time limits of tool calls and of weir's own requests, for all upstreams.
    pub(crate) deadlines: Option<RawUpstreamDeadlines>,
    /// The size of list pages, on all endpoints.
    pub(crate) page: Option<RawPage>,
    /// The naming of tools, on all endpoints with several upstreams.
    pub(crate) naming: Option<RawNaming>,
    /// Schema validation, for all upstreams.
    pub(crate) validation: Option<RawValidation>,
    /// Limits on the resources that clients may use.
    pub(crate) limits: Option<RawLimits>,
    /// Rate limits and quotas of clients. A reload removes all of them only if the file has the
    /// word `off`.
    pub(crate) rates: Option<OrOff<RawRates>>,
    /// The audit log. A reload removes it only if the file has the word `off`.
    pub(crate) audit: Option<OrOff<RawAudit>>,
    /// Metrics and traces, and the collector that they are sent to.
    pub(crate) telemetry: Option<RawTelemetry>,
    /// Protections that the running config has and this one gives up, by the paths that a refused
    /// reload names: `rates.principal`. The path of a section covers all keys in it. A protection
    /// with an `off` of its own (`policy: off`) is given up by that word alone.
    pub(crate) allow_weaker: Option<Vec<String>>,
}

/// The behaviour at a start if a file in `include` has errors.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawIncludeErrors {
    /// weir serves all other files. The paths of this file answer 503.
    LeaveOut,
    /// weir does not start.
    RefuseStart,
}

/// A team's file in the `include` folder.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTeamFile {
    pub(crate) upstreams: Option<OrderedMap<RawUpstream>>,
    #[serde(rename = "mcpServers")]
    pub(crate) mcp_servers: Option<OrderedMap<RawMcpServer>>,
    pub(crate) endpoints: Option<OrderedMap<RawEndpoint>>,
    pub(crate) allow_weaker: Option<Vec<String>>,
}

/// TLS files, in PEM.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTls {
    /// The certificate chain, leaf first.
    pub(crate) cert: Option<String>,
    /// The private key.
    pub(crate) key: Option<String>,
    /// The certificate authorities that may sign client certificates, in PEM.
    pub(crate) client_ca: Option<String>,
    /// Requires a client certificate, or makes it optional. Default `optional`: clients without a
    /// certificate need other credentials.
    pub(crate) client_auth: Option<RawClientAuth>,
}

/// The need for a client certificate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawClientAuth {
    /// Clients without a certificate need other credentials.
    Optional,
    /// A connection without a certificate is refused.
    Required,
}

/// The format and level of the log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawLog {
    /// The format of log lines. Default `auto`: human-readable on a terminal, JSON otherwise.
    pub(crate) format: Option<RawLogFormat>,
    /// A level (`info`, the default) or a filter such as `info,weir_upstream=debug`. `RUST_LOG` and
    /// `--log` take precedence.
    pub(crate) level: Option<String>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawLogFormat {
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
pub(crate) struct RawCors {
    /// Allowed origins: `scheme://host[:port]`.
    pub(crate) origins: Option<Vec<String>>,
}

/// The need for a session of clients of the legacy revisions.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawLegacySessions {
    /// A request without a session is refused.
    Required,
    /// A request without a session is served on its own.
    Optional,
}

/// The name and title that weir reports to clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawServer {
    /// The name of the server. Default `weir`.
    pub(crate) name: Option<String>,
    /// The display name of the server.
    pub(crate) title: Option<String>,
}
