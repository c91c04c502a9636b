//! The failures of a request, each with its cause, the responsible part, and advice.
//!
//! A failure has no HTTP form; only the response table of `layers` knows how it looks to a
//! client.

mod causes;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use causes::{causes, chain};

use crate::list_kind::ListKind;
use crate::names::UpstreamId;

/// The failure of a request. One word wide, because most results carry no failure.
#[derive(Debug)]
pub struct Failure(Box<FailureParts>);

#[derive(Debug)]
struct FailureParts {
    kind: FailureKind,
    message: Cow<'static, str>,
    upstream: Option<UpstreamId>,
    retry_after: Option<Duration>,
    limited: Option<LimitReached>,
    connection_lost: bool,
    own_limit: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The text for operators, unless it is made of the message and its sources.
    cause: Option<Box<str>>,
    /// The operator's rule that forbids it.
    rule: Option<Arc<str>>,
}

/// The kinds of failures. Front's response table matches them one by one, without a wildcard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    // -- weir's own codes, 1001 to 1007 --
    /// 1001: a deadline passed. The upstream was notified.
    TimedOut,
    /// 1002: the upstream cannot be reached or does not serve; the tool did not run.
    Unavailable,
    /// 1003: the upstream's answer is not valid.
    BadAnswer,
    /// 1004: the connection was lost after the request went out; the tool may have run.
    ResultUnknown,
    /// 1005: a rate or quota limit.
    Limit,
    /// 1006: too much in flight now.
    Busy,
    // -- the protocol's codes --
    /// -32601.
    MethodNotFound,
    /// -32602 about the requested name or value (unknown tool, bad cursor, bad level): HTTP 200 in
    /// both eras.
    InvalidParams,
    /// No such resource, by its URI: -32002 in legacy revisions, -32602 in the modern one; HTTP 200
    /// in both.
    UnknownResource(String),
    /// No such task: -32602, as for [`FailureKind::InvalidParams`].
    UnknownTask,
    /// The tool's arguments do not match its input schema. The call never reached the upstream.
    BadArguments,
    /// -32021: the client did not declare a capability this call needs. Holds the
    /// `ClientCapabilities` object to declare.
    MissingCapability(Bytes),
    /// An error object that the upstream answered with; its code, message and data pass through.
    Upstream(UpstreamError),
    /// -32603: a bug of weir's.
    Internal,
    // -- refusals --
    /// No or bad credentials: 401.
    Unauthenticated(AuthenticationDenial),
    /// The credentials lack scopes. Holds all scopes that the request takes, also those that the
    /// credentials have: 403, so that the client asks for all of them at once.
    InsufficientScope(Arc<[Arc<str>]>),
    /// A rule refuses it to this principal: 1007.
    Denied,
    /// The service is draining or shedding load: 503.
    Overloaded,
}

/// The message to a principal that an operator keeps out.
pub const BLOCKED: &str =
    "These credentials are blocked by an operator: ask whoever runs this service";

/// The message to callers of an upstream that is disabled.
pub const UPSTREAM_DISABLED: &str =
    "The server that has this is disabled by an operator; try again later";

/// The reason for not authenticating a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthenticationDenial {
    /// It sent no credentials.
    Missing,
    /// Its credentials are not valid. The word is for metrics and audit, one of a small, fixed set;
    /// a client never sees it.
    Invalid(&'static str),
}

/// The limit that a request ran into, for the client that is to obey it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitReached {
    /// The name of the limit, from the config.
    pub policy: Arc<str>,
    /// The requests (or the cost) that it allows in a window.
    pub limit: u64,
    /// The window.
    pub window: Duration,
    /// True for a quota of a day, false for a rate.
    pub quota: bool,
}

/// A JSON-RPC error as an upstream sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    /// Its code.
    pub code: i64,
    /// Its message.
    pub message: String,
    /// Its `data`, raw, if it had any.
    pub data: Option<Bytes>,
}

impl Failure {
    /// True if it is a server's own -32601.
    #[must_use]
    pub fn is_unknown_method(&self) -> bool {
        matches!(self.kind(), FailureKind::Upstream(error) if error.code == weir_wire::error_code::METHOD_NOT_FOUND)
    }

    /// True if the server does not have the method, by its own answer or by its revision.
    #[must_use]
    pub fn is_missing_method(&self) -> bool {
        self.is_unknown_method() || *self.kind() == FailureKind::MethodNotFound
    }

    /// A failure with the text that a client may read: the problem and the remedy. Never a secret,
    /// never an address.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(FailureParts {
            kind,
            message: message.into(),
            upstream: None,
            retry_after: None,
            limited: None,
            connection_lost: false,
            own_limit: false,
            source: None,
            cause: None,
            rule: None,
        }))
    }

    /// The same with another text for the client.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = message.into();
        self
    }

    /// The same, with the upstream's own error changed, if it is one.
    #[must_use]
    pub fn with_upstream_error(mut self, change: impl FnOnce(&mut UpstreamError)) -> Self {
        if let FailureKind::Upstream(error) = &mut self.0.kind {
            change(error);
        }
        self
    }

    /// A bug of weir's. The text goes to the log; the client sees only that it is weir's fault.
    #[must_use]
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FailureKind::Internal, message)
    }

    /// -32602 about the requested name or value.
    #[must_use]
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FailureKind::InvalidParams, message)
    }

    /// The one answer to a tool that does not exist, or that the principal may not see: a client
    /// cannot distinguish them.
    #[must_use]
    pub fn unknown_tool(name: &str) -> Self {
        Self::unknown("tool", name)
    }

    /// The same for another listed item.
    #[must_use]
    pub fn unknown(what: &str, name: &str) -> Self {
        Self::invalid_params(unknown_text(what, name))
    }

    /// The one answer to a task that does not exist, or is another principal's: a client cannot
    /// distinguish them.
    #[must_use]
    pub fn unknown_task(name: &str) -> Self {
        Self::new(FailureKind::UnknownTask, unknown_text("task", name))
    }

    /// The same for a resource: its absence has a code of its own in some revisions.
    #[must_use]
    pub fn unknown_resource(uri: &str) -> Self {
        Self::new(
            FailureKind::UnknownResource(shorten(uri)),
            "Resource not found",
        )
    }

    /// The one answer to a name that no item has, or whose item the sender may not see: a client
    /// cannot distinguish them.
    #[must_use]
    pub fn unknown_item(kind: ListKind, name: &str) -> Self {
        match kind {
            ListKind::Tools => Self::unknown_tool(name),
            ListKind::Prompts => Self::unknown("prompt", name),
            ListKind::Templates => Self::unknown("resource template", name),
            ListKind::Resources => Self::unknown_resource(name),
        }
    }

    /// The one answer to a cursor that does not open, is another's, or is too old.
    #[must_use]
    pub fn bad_cursor() -> Self {
        Self::invalid_params(
            "This cursor is not valid any more: start the list again without a cursor",
        )
    }

    /// Sets the upstream that the failure is about.
    #[must_use]
    pub fn with_upstream(mut self, upstream: &UpstreamId) -> Self {
        self.0.upstream = Some(upstream.clone());
        self
    }

    /// Sets the time after which trying again may help.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// Sets the limit that the request ran into.
    #[must_use]
    pub fn limited_by(mut self, limited: LimitReached) -> Self {
        self.0.limited = Some(limited);
        self
    }

    /// Records that the connection to the upstream broke after the request was sent, or that its
    /// process ended.
    #[must_use]
    pub fn connection_lost(mut self) -> Self {
        self.0.connection_lost = true;
        self
    }

    /// Records that the limit is the client's own: other clients, and a server of any capacity, do
    /// not change it.
    #[must_use]
    pub fn own_limit(mut self) -> Self {
        self.0.own_limit = true;
        self
    }

    /// Keeps the cause for operators. It may name programs, paths and addresses.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Sets the cause of an earlier attempt, for operators, if this attempt was not made at all.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<str>>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Sets the operator's rule that forbids it: for the audit, never for a client.
    #[must_use]
    pub fn forbidden_by(mut self, rule: Option<Arc<str>>) -> Self {
        self.0.rule = rule;
        self
    }

    /// The operator's rule that forbids it, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<&Arc<str>> {
        self.0.rule.as_ref()
    }

    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> &FailureKind {
        &self.0.kind
    }

    /// The text for the client.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The upstream it is about.
    #[must_use]
    pub fn upstream(&self) -> Option<&UpstreamId> {
        self.0.upstream.as_ref()
    }

    /// True if the connection to the upstream broke after the request was sent.
    #[must_use]
    pub fn is_connection_lost(&self) -> bool {
        self.0.connection_lost
    }

    /// True if the client exceeded a limit of its own.
    #[must_use]
    pub fn is_own_limit(&self) -> bool {
        self.0.own_limit
    }

    /// The wait before trying again, if known.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The limit that the request ran into, if any.
    #[must_use]
    pub fn limit_reached(&self) -> Option<&LimitReached> {
        self.0.limited.as_ref()
    }

    /// A word for metrics and for `data.reason`: one of a fixed, small set.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.0.kind.reason()
    }
}

impl FailureKind {
    /// The word for the kind in metrics and in `data.reason`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Unavailable => "unavailable",
            Self::BadAnswer => "bad_answer",
            Self::ResultUnknown => "result_unknown",
            Self::Limit => "limit",
            Self::Busy => "busy",
            Self::MethodNotFound => "method_not_found",
            Self::InvalidParams | Self::UnknownTask => "invalid_params",
            Self::UnknownResource(_) => "unknown_resource",
            Self::BadArguments => "bad_arguments",
            Self::MissingCapability(_) => "missing_capability",
            Self::Upstream(_) => "upstream_error",
            Self::Internal => "internal",
            Self::Unauthenticated(_) => "unauthenticated",
            Self::InsufficientScope(_) => "insufficient_scope",
            Self::Denied => "denied",
            Self::Overloaded => "overloaded",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(upstream) = &self.0.upstream {
            write!(f, "upstream {upstream}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|e| e as &(dyn std::error::Error + 'static))
    }
}

fn unknown_text(what: &str, name: &str) -> String {
    format!("Unknown {what}: {}", shorten(name))
}

/// A client's own text, cut so that an error never grows with its input.
fn shorten(text: &str) -> String {
    const MAX_CHARACTERS: usize = 128;
    if text.chars().count() <= MAX_CHARACTERS {
        text.to_owned()
    } else {
        text.chars().take(MAX_CHARACTERS).chain(['…']).collect()
    }
}
