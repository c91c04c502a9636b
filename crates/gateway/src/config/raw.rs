//! The config as it is written: every key optional, nothing judged yet. The JSON Schema is made
//! from these types.

mod admin;
mod audit;
mod auth;
mod endpoint;
mod limits;
mod or_off;
mod ordered;
mod outbound;
mod policy;
mod rates;
mod teams;
mod telemetry;
mod toolsets;
mod units;
mod upstream;

pub(crate) use admin::{RawAdmin, RawAdminToken, RawMetrics};
pub(crate) use audit::{RawArguments, RawAudit, RawAuditFile, RawOnFailure, RawOtlp, RawRotate};
pub(crate) use auth::{RawApiKey, RawAuth, RawIntrospection, RawIssuer, RawSubject};
pub(crate) use endpoint::{RawAlphabet, RawEndpoint, RawNaming, RawPage, RawPrefix};
pub(crate) use limits::RawLimits;
pub(crate) use or_off::OrOff;
pub(crate) use ordered::Ordered;
pub(crate) use outbound::{RawOutbound, RawOutboundMode, RawSecretPlace, RawSubjectToken};
pub(crate) use policy::RawPolicy;
pub(crate) use rates::{
    Frequency, RawConcurrency, RawLimit, RawRate, RawRates, RawToolLimit, RawUncounted,
};
pub(crate) use teams::{RawConsent, RawTeam};
pub(crate) use telemetry::{RawPush, RawPushProtocol, RawTelemetry};
pub(crate) use toolsets::{RawHints, RawToolset, RawTrust};
pub(crate) use units::{Size, Time};
pub(crate) use upstream::{
    RawAsk, RawCheck, RawDeadlines, RawMcpServer, RawOversized, RawProtocol, RawResults,
    RawSecretArguments, RawSecretResults, RawSecrets, RawSession, RawUpstream,
    RawUpstreamDeadlines, RawUpstreamLimits, RawValidation,
};

use schemars::JsonSchema;
use serde::Deserialize;

/// weir's config. Everything but the upstreams has a default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "weir.yaml")]
pub(crate) struct Raw {
    /// Where clients connect: `address:port`. Default `127.0.0.1:8080`.
    pub(crate) listen: Option<String>,
    /// The `scheme://host[:port]` under which clients reach weir. Default: `http(s)://` and what
    /// `listen` says.
    pub(crate) public_url: Option<String>,
    /// The listener for operators: health, metrics, the status page and the admin API.
    pub(crate) admin: Option<RawAdmin>,
    /// Where sessions are kept. Only `memory` (the default) is there in this version.
    pub(crate) store: Option<String>,
    /// Sealing keys, newest first: the first seals, all open. Absent: a random one at every start.
    pub(crate) keys: Option<Vec<RawKey>>,
    /// Serve TLS with these files; they are read again when they change. A reload takes TLS away
    /// only where the file says `off`.
    pub(crate) tls: Option<OrOff<RawTls>>,
    /// How weir logs.
    pub(crate) log: Option<RawLog>,
    /// How long running calls may take to end when weir stops. Default `25s`.
    pub(crate) drain: Option<Time>,
    /// A folder with further files, one a team, each with `upstreams`, `mcpServers` and `endpoints`
    /// of its own. Each has the rights that `teams` gives it, and no others.
    pub(crate) include: Option<String>,
    /// The rights of the files in `include`, by their names without the extension. A file that is
    /// not here has none.
    pub(crate) teams: Option<Ordered<RawTeam>>,
    /// What a start does where a file in `include` has errors. Default `leave_out`. A reload keeps
    /// the file's last good version either way.
    pub(crate) include_errors: Option<RawIncludeErrors>,
    /// The servers behind weir, by id: a lower-case letter, then letters, digits and `-`, at most
    /// 24.
    pub(crate) upstreams: Option<Ordered<RawUpstream>>,
    /// The same as MCP clients write it (docs/migrating.md). Keys that are no ids are changed into
    /// some; unknown keys are ignored.
    #[serde(rename = "mcpServers")]
    pub(crate) mcp_servers: Option<Ordered<RawMcpServer>>,
    /// The paths clients use. Absent: `/mcp` with all upstreams, and `/mcp/<id>` for each alone;
    /// those of a team's file are there as far as `teams` grants these paths.
    pub(crate) endpoints: Option<Ordered<RawEndpoint>>,
    /// Who may connect.
    pub(crate) auth: Option<RawAuth>,
    /// Rules about who may see and call what. Absent or `off`: everybody who is let in sees and
    /// calls everything. A reload takes rules away only where the file says `off`.
    pub(crate) policy: Option<OrOff<RawPolicy>>,
    /// Browser access from other origins.
    pub(crate) cors: Option<RawCors>,
    /// Further names clients may use in `Host`: `name` or `name:port`.
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// Addresses or networks whose `X-Forwarded-For` is believed.
    pub(crate) trusted_proxies: Option<Vec<String>>,
    /// Whether clients of the older revisions must open a session. Default `required`.
    pub(crate) legacy_sessions: Option<RawLegacySessions>,
    /// Whether HTTP+SSE, the transport of 2024-11-05, is served beside each endpoint, at
    /// `<path>/sse`. Default true.
    pub(crate) http_sse: Option<bool>,
    /// What weir calls itself to clients.
    pub(crate) server: Option<RawServer>,
    /// How long the first list after a start waits for upstreams that have not answered yet.
    /// Default `2s`.
    pub(crate) first_list_wait: Option<Time>,
    /// The shortest time between two change notifications to one client. Default `500ms`.
    pub(crate) change_window: Option<Time>,
    /// Time limits of tool calls and of what weir asks for itself, for all upstreams.
    pub(crate) deadlines: Option<RawUpstreamDeadlines>,
    /// How lists are cut into pages, on all endpoints.
    pub(crate) page: Option<RawPage>,
    /// How tools are named, on all endpoints with several upstreams.
    pub(crate) naming: Option<RawNaming>,
    /// Schema validation, for all upstreams.
    pub(crate) validation: Option<RawValidation>,
    /// What clients may cost.
    pub(crate) limits: Option<RawLimits>,
    /// How often clients may come. A reload takes all limits away only where the file says `off`.
    pub(crate) rates: Option<OrOff<RawRates>>,
    /// The record of who did what. A reload takes it away only where the file says `off`.
    pub(crate) audit: Option<OrOff<RawAudit>>,
    /// What is measured and told, and to whom.
    pub(crate) telemetry: Option<RawTelemetry>,
    /// Protections that an earlier config has and this one gives up, by the places that a refused
    /// reload names: `rates.principal`. A section's place stands for all in it. Protections with a
    /// word of their own (`policy: off`) are given up by that word alone.
    pub(crate) allow_weaker: Option<Vec<String>>,
}

/// What a start does where a file in `include` has errors.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawIncludeErrors {
    /// weir serves all other files; the paths of this one answer 503.
    LeaveOut,
    /// weir does not start.
    RefuseStart,
}

/// A team's file in the `include` folder.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTeamFile {
    pub(crate) upstreams: Option<Ordered<RawUpstream>>,
    #[serde(rename = "mcpServers")]
    pub(crate) mcp_servers: Option<Ordered<RawMcpServer>>,
    pub(crate) endpoints: Option<Ordered<RawEndpoint>>,
    pub(crate) allow_weaker: Option<Vec<String>>,
}

/// A sealing key, as `weir keygen` prints it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawKey {
    /// A number from 1 to 255 that names the key in what it sealed.
    pub(crate) id: Option<u8>,
    /// 32 bytes in URL-safe base64. Keep it out of the file: `${WEIR_KEY}`.
    pub(crate) secret: Option<super::Secret>,
}

/// TLS files, PEM.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTls {
    /// The certificate chain, leaf first.
    pub(crate) cert: Option<String>,
    /// The private key.
    pub(crate) key: Option<String>,
    /// The authorities whose client certificates are taken, PEM.
    pub(crate) client_ca: Option<String>,
    /// Whether clients must show a certificate. Default `optional`: those without one need other
    /// credentials.
    pub(crate) client_auth: Option<RawClientAuth>,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawClientAuth {
    /// Those without one need other credentials.
    Optional,
    /// A connection without one is refused.
    Required,
}

/// How weir logs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawLog {
    /// Default `auto`: for people on a terminal, JSON otherwise.
    pub(crate) format: Option<RawLogFormat>,
    /// A level (`info`, the default) or a filter such as `info,weir_upstream=debug`. `RUST_LOG` and
    /// `--log` win.
    pub(crate) level: Option<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawLogFormat {
    /// For people on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Browser access from other origins.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawCors {
    /// Allowed origins: `scheme://host[:port]`.
    pub(crate) origins: Option<Vec<String>>,
}

/// Whether clients of the older revisions must open a session.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawLegacySessions {
    /// A request without a session is refused.
    Required,
    /// It is served for itself.
    Optional,
}

/// What weir calls itself to clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawServer {
    /// Default `weir`.
    pub(crate) name: Option<String>,
    /// A name for people.
    pub(crate) title: Option<String>,
}
