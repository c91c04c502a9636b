//! `upstreams:` and `mcpServers:` as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Size, Time};
use super::{Ordered, RawOutbound};
use crate::config::Secret;

/// A server behind weir: either `url` or `command`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawUpstream {
    /// Where it is, for a server over HTTP.
    pub(crate) url: Option<String>,
    /// The program, for a server that weir starts.
    pub(crate) command: Option<String>,
    /// Its arguments.
    pub(crate) args: Option<Vec<String>>,
    /// Its environment, beside `PATH`, `HOME` and the like, authorities (`SSL_CERT_FILE`,
    /// `NODE_EXTRA_CA_CERTS`) and proxies without a password (`HTTPS_PROXY`, `NO_PROXY`); nothing
    /// else of weir's own environment is handed on.
    pub(crate) env: Option<Ordered<Secret>>,
    /// The folder it runs in.
    pub(crate) cwd: Option<String>,
    /// How long it may take to answer for the first time. Default `60s`.
    pub(crate) start: Option<Time>,
    /// Which protocol it speaks. Default `auto`: weir finds out, and speaks to a server of both
    /// eras as each client does; a command has a process for each era then. `legacy` helps where a
    /// server asks its clients while a call runs and can do so in sessions alone: then modern
    /// clients are served through sessions, too. `legacy` or `modern` also helps where a command
    /// keeps state that clients of both eras are to share: then it has one process.
    pub(crate) protocol: Option<RawProtocol>,
    /// Who shares a session or process. Default: `principal`; for a command without `auth`, where
    /// all callers are one, `shared`.
    pub(crate) session: Option<RawSession>,
    /// What it may ask of clients in the middle of their calls. Default: everything that the client
    /// says it can be asked; where everybody shares a session or process, nothing. With `auth`, a
    /// server that cannot tell weir's callers apart (they share a session, or one credential of
    /// weir's there) sends nobody to a page unless `elicitation_url` is named.
    pub(crate) asks: Option<Vec<RawAsk>>,
    /// Whether `baggage` (W3C) that a client says in `_meta` goes on to it. Default `false`: it is
    /// dropped.
    pub(crate) baggage: Option<bool>,
    /// Headers on every request to it. Keep secrets out of the file: `Bearer ${TOKEN}`.
    pub(crate) headers: Option<Ordered<Secret>>,
    /// OAuth tokens on every request to it: weir's own, or its callers' by exchange.
    pub(crate) auth: Option<RawOutbound>,
    /// A PEM file with further root certificates for it.
    pub(crate) ca_file: Option<String>,
    /// HTTP/2 without TLS, for an `http` URL.
    pub(crate) h2c: Option<bool>,
    /// Time limits of its calls, and of what weir asks it for itself.
    pub(crate) deadlines: Option<RawUpstreamDeadlines>,
    /// Schema validation of its tools.
    pub(crate) validation: Option<RawValidation>,
    /// Exceptions for single tools, by the upstream's own name for them.
    pub(crate) tools: Option<Ordered<RawTool>>,
    /// How often its lists are read again where it does not tell of changes. Default `60s`.
    pub(crate) poll: Option<Time>,
    /// How long its tools stay listed while it is down. Default `5m`.
    pub(crate) grace: Option<Time>,
    /// Whether rules may believe what its tools say of themselves. Default `untrusted`.
    pub(crate) trust: Option<super::RawTrust>,
    /// Guards against endless lists.
    pub(crate) walk: Option<RawWalk>,
    /// What it may make weir hold.
    pub(crate) limits: Option<RawUpstreamLimits>,
    /// The search for secrets in its calls (docs/outputs.md). A reload takes it away only where the
    /// file says `off`.
    pub(crate) secrets: Option<super::OrOff<RawSecrets>>,
    /// How large its results may be (docs/outputs.md). Absent: `max_reply` of its `limits` is the
    /// only bound, and larger results are streamed.
    pub(crate) results: Option<RawResults>,
}

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawProtocol {
    /// weir finds out and remembers.
    Auto,
    /// 2026-07-28 and later.
    Modern,
    /// 2024-11-05 to 2025-11-25, with `initialize`.
    Legacy,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// Who shares a session or process of a server.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSession {
    /// Everybody: nothing of one client shows to another.
    Shared,
    /// Each principal has its own; of a process, one for each class of what its clients can be
    /// asked.
    Principal,
}

/// What a server may ask of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawAsk {
    /// To have their model complete a prompt, with tools or without.
    Sampling,
    /// To have their user fill in a form; and visit a page, where the server can tell callers
    /// apart.
    Elicitation,
    /// To have their user visit a page, wherever: it is the operator's word that no caller's visit
    /// counts for another.
    ElicitationUrl,
    /// Which folders they work in.
    Roots,
}

/// Time limits of tool calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawDeadlines {
    /// To get a connection. Default `2s`.
    pub(crate) connect: Option<Time>,
    /// Between two signs of life: answer bytes, progress, log messages. Default `5m`.
    pub(crate) idle: Option<Time>,
    /// Altogether, whatever progress there is. Default `1h`.
    pub(crate) hard: Option<Time>,
}

/// Time limits of calls of upstreams, and of what weir asks them for itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawUpstreamDeadlines {
    /// To get a connection. Default `2s`.
    pub(crate) connect: Option<Time>,
    /// Between two signs of life: answer bytes, progress, log messages. Default `5m`.
    pub(crate) idle: Option<Time>,
    /// Altogether, whatever progress there is. Default `1h`.
    pub(crate) hard: Option<Time>,
    /// For one page of a list, and for whatever else weir asks for itself; at most 60 seconds,
    /// which a whole list has. Default `10s`.
    pub(crate) list: Option<Time>,
    /// For each request that finds out what the server speaks or opens a session; at most 30
    /// seconds. Default `10s`. How long a process may take for its first answer is `start`.
    pub(crate) probe: Option<Time>,
}

impl RawUpstreamDeadlines {
    /// Those of calls.
    pub(crate) fn of_calls(self) -> RawDeadlines {
        RawDeadlines {
            connect: self.connect,
            idle: self.idle,
            hard: self.hard,
        }
    }
}

/// Schema validation.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawValidation {
    /// Of arguments, before a call goes out. Default `enforce`, but a tool whose schema cannot be
    /// used stays unchecked; `enforce` written here refuses the calls of such a tool, too.
    pub(crate) input: Option<RawCheck>,
    /// Of structured results. Default `warn`.
    pub(crate) output: Option<RawCheck>,
}

/// What happens to a value that does not match.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawCheck {
    /// It is not looked at.
    Off,
    /// It is counted and passes.
    Warn,
    /// It is refused.
    Enforce,
}

/// Exceptions for one tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTool {
    /// Time limits of its calls.
    pub(crate) deadlines: Option<RawDeadlines>,
    /// Schema validation.
    pub(crate) validation: Option<RawValidation>,
    /// Scopes a caller has to have, on every endpoint.
    pub(crate) scopes: Option<Vec<String>>,
    /// Whether hidden characters are removed from its results (docs/outputs.md), on every endpoint.
    /// Default: as the endpoint says.
    pub(crate) clean: Option<bool>,
    /// Whether two calls do no more than one: then a call whose connection broke before anything of
    /// its answer came is made once more. Default `false`: its client is told that the tool may
    /// have run.
    pub(crate) safe_to_repeat: Option<bool>,
}

/// Guards against endless lists.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawWalk {
    /// Pages. Default 200.
    pub(crate) pages: Option<usize>,
    /// Items. Default 10000.
    pub(crate) items: Option<usize>,
    /// Size of one item. Default `256KiB`.
    pub(crate) item_bytes: Option<Size>,
}

/// What a server may make weir hold.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawUpstreamLimits {
    /// Calls in flight. Default 256.
    pub(crate) in_flight: Option<usize>,
    /// One reply. Default `64MiB`.
    pub(crate) max_reply: Option<Size>,
    /// Sessions held open. Default 1000.
    pub(crate) sessions: Option<usize>,
    /// How long an unused session or process stays. Default `5m`.
    pub(crate) session_idle: Option<Time>,
    /// Sessions over Streamable HTTP with a stream that stays open so that changes of their own
    /// lists are heard. Default 256. Beyond it the session used least lately goes on without one:
    /// its lists are read again when its client asks for them. 0: none has one.
    pub(crate) standing: Option<usize>,
    /// Processes at once: those of principals, with `session: principal`, and the one for the
    /// second era of a server that speaks both. Default 64. Beyond it calls are refused as busy: no
    /// process that was idle for less than `session_idle` is ended to make room. Where only the
    /// process for a client's era is missing and the client can be asked nothing, the call goes to
    /// the other era instead.
    pub(crate) max_processes: Option<usize>,
}

/// The search for secrets in the calls of a server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawSecrets {
    /// A file with a map of names and regular expressions; it is read again when it changes.
    pub(crate) patterns: Option<String>,
    /// What happens to a call with a secret in its arguments. Default `off`.
    pub(crate) arguments: Option<RawSecretArguments>,
    /// What happens to a secret in a result, an error, a question or a notification. Default
    /// `mask`. A result is held until all of it is there, within `limits.hold_per_call`; a larger
    /// one is refused.
    pub(crate) results: Option<RawSecretResults>,
}

/// What happens to a call with a secret in its arguments.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSecretArguments {
    /// They are not looked at.
    Off,
    /// It is not made.
    Refuse,
}

/// What happens to a secret in an answer.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSecretResults {
    /// Answers are not looked at.
    Off,
    /// `[masked: NAME]` stands in its place.
    Mask,
    /// An error stands in the place of the answer.
    Refuse,
}

/// How large the results of a server may be.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawResults {
    /// The largest result, from 1KiB to `limits.hold_per_call`: it is held until all of it is
    /// there.
    pub(crate) max: Option<Size>,
    /// What happens to a larger one. Default `refuse`.
    pub(crate) over: Option<RawOversized>,
}

/// What happens to a result that is too large.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawOversized {
    /// An error stands in its place.
    Refuse,
    /// It loses text, and says how much; where that is not enough, or it is larger than
    /// `limits.hold_per_call`, it is refused.
    Cut,
}

/// A server as MCP clients write it. Their other keys with a meaning (`httpUrl`, `serverUrl`,
/// `envFile`, `enabled` and others) are taken, too, and so are their references, such as
/// `${env:NAME}`: see docs/migrating.md.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawMcpServer {
    /// `stdio`, `http`, `streamable-http` or `sse`; found out where absent.
    pub(crate) r#type: Option<String>,
    /// Where it is.
    pub(crate) url: Option<String>,
    /// The program.
    pub(crate) command: Option<String>,
    /// Its arguments.
    pub(crate) args: Option<Vec<String>>,
    /// Its environment.
    pub(crate) env: Option<Ordered<Secret>>,
    /// The folder it runs in.
    pub(crate) cwd: Option<String>,
    /// Headers on every request.
    pub(crate) headers: Option<Ordered<Secret>>,
    /// Leave it out.
    pub(crate) disabled: Option<bool>,
}

impl RawMcpServer {
    /// The keys weir knows; others are ignored with a warning.
    pub(crate) const KEYS: [&'static str; 8] = [
        "type", "url", "command", "args", "env", "cwd", "headers", "disabled",
    ];
}
