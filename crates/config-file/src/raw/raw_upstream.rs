//! `upstreams:` and `mcpServers:` as written in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;
use crate::raw::OrderedMap;
use crate::raw::RawOutbound;
use crate::raw::{Size, Time};

/// An upstream, with one of `url`, `urls` and `command`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawUpstream {
    /// The URL of an upstream over HTTP.
    #[schemars(extend("x-protection" = "none"))]
    pub url: Option<String>,
    /// The URLs of an upstream over HTTP that has several instances, instead of `url`: at most 64.
    /// An item is a URL, or `{ url, weight }`. weir balances the calls over them
    /// (docs/scaling.md#upstreams-with-several-urls). All of them have the same lists, and get the
    /// same headers and tokens.
    #[schemars(extend("x-protection" = "none below"))]
    pub urls: Option<Vec<super::RawUpstreamUrl>>,
    /// The program of an upstream that weir starts as a child process.
    #[schemars(extend("x-protection" = "none"))]
    pub command: Option<String>,
    /// The arguments of the program.
    #[schemars(extend("x-protection" = "none"))]
    pub args: Option<Vec<String>>,
    /// The environment of the program. It also gets `PATH`, `HOME` and the like, certificate
    /// authorities (`SSL_CERT_FILE`, `NODE_EXTRA_CA_CERTS`) and proxies without a password
    /// (`HTTPS_PROXY`, `NO_PROXY`). The rest of weir's own environment is not passed on.
    #[schemars(extend("x-protection" = "none below"))]
    pub env: Option<OrderedMap<ConfigSecret>>,
    /// The working directory of the program.
    #[schemars(extend("x-protection" = "none"))]
    pub cwd: Option<String>,
    /// The replicas that run the program, if several share a `store` (docs/replicas.md). Default
    /// `each_replica`.
    #[schemars(extend("x-protection" = "none"))]
    pub instances: Option<RawInstances>,
    /// The time until its first answer. Default `60s`.
    #[schemars(extend("x-protection" = "none"))]
    pub start: Option<Time>,
    /// The protocol of the upstream. Default `auto`: weir detects it, and uses each client's era
    /// with an upstream of both eras; a command then has one process for each era. Set `legacy` for
    /// an upstream that sends requests to its clients during a call and can do so in sessions only:
    /// modern clients are then served through sessions too. Set `legacy` or `modern` for a command
    /// whose state clients of both eras share: it then has one process.
    #[schemars(extend("x-protection" = "none"))]
    pub protocol: Option<RawProtocol>,
    /// The sharing of a session or process. Default: `principal`. For a command in a config without
    /// top-level `auth`: `shared`, because all callers are one principal.
    #[schemars(extend("x-protection" = "none"))]
    pub session: Option<RawSession>,
    /// The requests that it may send to clients during their calls. Default: every kind that the
    /// client supports; with a shared session or process, an empty list. With top-level `auth`, an
    /// upstream that cannot tell weir's callers apart (a shared session, or one credential of weir)
    /// must not open a URL elicitation unless `elicitation_url` is listed.
    pub asks: Option<Vec<RawAsk>>,
    /// Forwards the `baggage` (W3C) in a client's `_meta`. Default `false`: it is dropped.
    #[schemars(extend("x-protection" = "none"))]
    pub baggage: Option<bool>,
    /// Headers on every request to the upstream. Keep secrets out of the file: `Bearer ${TOKEN}`.
    #[schemars(extend("x-protection" = "none below"))]
    pub headers: Option<OrderedMap<ConfigSecret>>,
    /// OAuth tokens on every request to the upstream: weir's own, or its callers' by token
    /// exchange.
    #[schemars(extend("x-protection" = "none below"))]
    pub auth: Option<RawOutbound>,
    /// A PEM file with further root certificates for the upstream.
    #[schemars(extend("x-protection" = "none"))]
    pub ca_file: Option<String>,
    /// Uses HTTP/2 without TLS, for an `http` URL.
    #[schemars(extend("x-protection" = "none"))]
    pub h2c: Option<bool>,
    /// Time limits of its calls, and of weir's own requests to it.
    #[schemars(extend("x-protection" = "none below"))]
    pub deadlines: Option<RawUpstreamDeadlines>,
    /// Schema validation of its tools.
    pub validation: Option<RawValidation>,
    /// Exceptions for single tools, by the upstream's own name for them.
    #[schemars(extend("x-protection" = "none"))]
    pub tools: Option<OrderedMap<RawTool>>,
    /// The interval between reads of its lists, if it does not send change notifications, and after
    /// calls of listed tools or prompts that it refuses as unknown. Default `60s`.
    #[schemars(extend("x-protection" = "none"))]
    pub poll: Option<Time>,
    /// The time that its tools stay listed while it is down. If it asks for a pause (`Retry-After`
    /// with 429 or 503) before it is asked for its lists again, weir waits for at most half of this
    /// time, and an hour. Default `5m`.
    #[schemars(extend("x-protection" = "none"))]
    pub grace: Option<Time>,
    /// The trust of rules in the annotations of its tools. Default `untrusted`.
    #[schemars(extend("x-protection" = "none"))]
    pub trust: Option<super::RawTrust>,
    /// Guards against endless lists.
    #[schemars(extend("x-protection" = "none below"))]
    pub walk: Option<RawWalk>,
    /// Limits on the resources that it may use in weir.
    #[schemars(extend("x-protection" = "none below"))]
    pub limits: Option<RawUpstreamLimits>,
    /// The search for secrets in its calls (docs/outputs.md). A reload removes it only if the file
    /// has the word `off`.
    pub secrets: Option<super::OrOff<RawSecrets>>,
    /// The size limit of its results (docs/outputs.md). Absent: `max_reply` of its `limits` is the
    /// only bound, and larger results are streamed.
    #[schemars(extend("x-protection" = "none below"))]
    pub results: Option<RawResults>,
}

/// The replicas that run the program of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawInstances {
    /// Each replica runs its own.
    EachReplica,
    /// One replica runs it, and serves the calls of all. For a program with state in its process.
    /// Without a shared `store` it is the one process of weir.
    One,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawProtocol {
    /// weir detects and remembers it.
    Auto,
    /// 2026-07-28 and later.
    Modern,
    /// 2024-11-05 to 2025-11-25, with `initialize`.
    Legacy,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// The sharing of a session or process of an upstream.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSession {
    /// All clients share it. Only for an upstream that shows no data of one client to another.
    Shared,
    /// Each principal has its own. Processes are also separate for each set of client capabilities.
    Principal,
}

/// The kinds of requests that an upstream may send to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawAsk {
    /// Sampling: the client's model completes a prompt, with tools or without.
    Sampling,
    /// Elicitation: the client's user fills in a form, or opens a URL if the upstream can tell
    /// callers apart.
    Elicitation,
    /// URL elicitation on every upstream: the operator asserts that no caller's visit counts for
    /// another.
    ElicitationUrl,
    /// Roots: the client's folders.
    Roots,
}

/// Time limits of tool calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawDeadlines {
    /// The time to get a connection. Default `2s`.
    pub connect: Option<Time>,
    /// The time between two signs of life: response bytes, progress, log messages. Default `5m`.
    pub idle: Option<Time>,
    /// The time of the whole call, regardless of progress. Default `1h`.
    pub hard: Option<Time>,
}

/// Time limits of calls of upstreams, and of weir's own requests to them.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawUpstreamDeadlines {
    /// The time to get a connection. Default `2s`.
    pub connect: Option<Time>,
    /// The time between two signs of life: response bytes, progress, log messages. Default `5m`.
    pub idle: Option<Time>,
    /// The time of the whole call, regardless of progress. Default `1h`.
    pub hard: Option<Time>,
    /// The time of one page of a list, and of weir's other own requests, answers and notifications;
    /// at most 60 seconds, the limit of a whole list. Default `10s`.
    pub list: Option<Time>,
    /// The time of each request that detects the protocol or opens a session; at most 30 seconds.
    /// Default `10s`. The first answer of a process has `start` instead.
    pub probe: Option<Time>,
}

impl RawUpstreamDeadlines {
    /// Returns the time limits of calls.
    pub fn of_calls(self) -> RawDeadlines {
        RawDeadlines {
            connect: self.connect,
            idle: self.idle,
            hard: self.hard,
        }
    }
}

/// Schema validation. `format` is not checked.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawValidation {
    /// The validation of arguments, before a call goes out. Default `enforce`, but a tool with an
    /// unusable schema stays unchecked. An explicit `enforce` refuses the calls of such a tool,
    /// too. A required property with a `default` may be absent: the server fills it in.
    pub input: Option<RawCheck>,
    /// The validation of structured results. Default `warn`.
    pub output: Option<RawCheck>,
}

/// The handling of a value that does not match.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawCheck {
    /// The value is not checked.
    Off,
    /// The mismatch is counted, and the value passes.
    Warn,
    /// The value is refused.
    Enforce,
}

/// Exceptions for one tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTool {
    /// Time limits of its calls.
    #[schemars(extend("x-protection" = "none below"))]
    pub deadlines: Option<RawDeadlines>,
    /// Schema validation.
    pub validation: Option<RawValidation>,
    /// Scopes that a caller needs, on every endpoint.
    pub scopes: Option<Vec<String>>,
    /// Removes hidden characters from its results (docs/outputs.md), on every endpoint. Default:
    /// the endpoint's `clean`.
    #[schemars(extend("x-protection" = "none"))]
    pub clean: Option<bool>,
    /// Declares that two calls have the effect of one. If the connection breaks before the first
    /// byte of a response, the call is then repeated once. Default `false`: the client gets an
    /// error that the tool may have run.
    #[schemars(extend("x-protection" = "none"))]
    pub safe_to_repeat: Option<bool>,
}

/// Guards against endless lists.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawWalk {
    /// The number of pages. Default 200.
    pub pages: Option<usize>,
    /// The number of items. Default 10000.
    pub items: Option<usize>,
    /// The size of one item. Default `256KiB`.
    pub item_bytes: Option<Size>,
}

/// Limits on the resources that an upstream may use in weir.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawUpstreamLimits {
    /// Calls in flight. Default 256.
    pub in_flight: Option<usize>,
    /// The size of one reply. Default `64MiB`.
    pub max_reply: Option<Size>,
    /// Sessions held open. Default 1000.
    pub sessions: Option<usize>,
    /// The time that an unused session or process stays. Default `5m`.
    pub session_idle: Option<Time>,
    /// Streamable HTTP sessions with an open stream that receives changes of lists, and log
    /// messages outside of calls. Default 256. Beyond that, the least recently used session loses
    /// its stream, and the lists of a session of one client are read again when its client asks
    /// for them. With 0 no session has a stream.
    pub standing: Option<usize>,
    /// Processes at once: those of principals, with `session: principal`, and the one for the
    /// second era of an upstream that speaks both. Default 64. Beyond it calls are refused as busy:
    /// a process that was idle for less than `session_idle` is not ended to make room. If only the
    /// process for a client's era is missing and the client accepts no requests, the call uses the
    /// other era instead.
    pub max_processes: Option<usize>,
}

/// The search for secrets in the calls of an upstream.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawSecrets {
    /// A file with a map of names and regular expressions. It is read again when it changes.
    pub patterns: Option<String>,
    /// The handling of a call with a secret in its arguments. Default `off`.
    pub arguments: Option<RawSecretArguments>,
    /// The handling of a secret in a result, an error, a server's request or a notification.
    /// Default `mask`. A result is held until it is complete, within `limits.hold_per_call`. A
    /// larger one is refused.
    // Absent is `mask`.
    #[schemars(extend("x-protection" = "none"))]
    pub results: Option<RawSecretResults>,
}

/// The handling of a call with a secret in its arguments.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSecretArguments {
    /// Arguments are not searched.
    Off,
    /// The call is refused.
    Refuse,
}

/// The handling of a secret in an answer.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSecretResults {
    /// Answers are not searched.
    Off,
    /// The secret is replaced by `[masked: NAME]`.
    Mask,
    /// The answer is replaced by an error.
    Refuse,
}

/// The size limit of the results of an upstream.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawResults {
    /// The largest result, from 1KiB to `limits.hold_per_call`. It is held until it is complete.
    pub max: Option<Size>,
    /// The handling of a larger result. Default `refuse`.
    pub over: Option<RawOversized>,
}

/// The handling of a result that is too large.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawOversized {
    /// The result is replaced by an error.
    Refuse,
    /// Text is cut from the result, with a note of the amount. If that is not enough, or the result
    /// is larger than `limits.hold_per_call`, it is refused.
    Cut,
}

/// An upstream in the format of MCP clients. Their other keys with a meaning (`httpUrl`,
/// `serverUrl`, `envFile`, `enabled` and others) are accepted too, and so are their references,
/// such as `${env:NAME}`: see docs/migrating.md.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RawMcpServer {
    /// The transport: `stdio`, `http`, `streamable-http` or `sse`. Detected if absent.
    pub r#type: Option<String>,
    /// The URL of the upstream.
    pub url: Option<String>,
    /// The program to start.
    pub command: Option<String>,
    /// The arguments of the program.
    pub args: Option<Vec<String>>,
    /// The environment of the program.
    pub env: Option<OrderedMap<ConfigSecret>>,
    /// The working directory of the program.
    pub cwd: Option<String>,
    /// Headers on every request to the upstream.
    pub headers: Option<OrderedMap<ConfigSecret>>,
    /// Leaves the upstream out.
    pub disabled: Option<bool>,
}

impl RawMcpServer {
    /// The keys that weir uses. Other keys are ignored with a warning.
    pub(crate) const KEYS: [&'static str; 8] = [
        "type", "url", "command", "args", "env", "cwd", "headers", "disabled",
    ];
}
