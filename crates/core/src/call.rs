//! The canonical call: one client request, with all that is needed to answer it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weir_wire::log_level::LogLevel;
use weir_wire::method::Method;
use weir_wire::params::Params;

pub use crate::names::RequestName;
pub use crate::trace::TraceContext;

use crate::capability::CapabilityClass;
use crate::names::EndpointId;

/// A canonical call. It is shaped like the newest revision: facts from a session or a header are on
/// the call itself.
#[derive(Clone, Debug)]
pub struct Call {
    /// The endpoint that the client called.
    pub endpoint: EndpointId,
    /// The method of the request.
    pub method: Method,
    /// The client's own `params`, byte for byte, with a view of the members weir knows.
    pub params: Params,
    /// The requests that the client accepts during this call.
    pub capabilities: CallCapabilities,
    /// True if the client gave a progress token. The token itself stays in front: every hop mints
    /// its own.
    pub wants_progress: bool,
    /// The log messages that the client wants with this call.
    pub log_messages: LogMessages,
    /// The client's session, if it has one: upstream sessions of the `session` kind are keyed by
    /// it.
    pub session: Option<SessionKey>,
    /// The form of asking the client for input during the call.
    pub input_mode: InputMode,
    /// The point at which the call goes on, if it ended with a question before. `requestState` in
    /// `params` is then weir's sealed text and has no meaning for the upstream.
    pub resume: Option<CallResumption>,
    /// The `inputResponses` object that weir gathered for the client. If absent, the one in
    /// `params` counts.
    pub input_responses: Option<Bytes>,
    /// The JSON-RPC errors by which the client refuses questions of a task, an object by their
    /// keys. Servers of 2025-11-25 alone take them.
    pub input_refusals: Option<Bytes>,
    /// True for a request about a task that needs the status alone: its server keeps the result for
    /// a later request.
    pub wants_status_only: bool,
    /// True if weir makes it to go on with a call of the client that was charged at its beginning:
    /// it takes no rate and no quota. Only weir's own repeats have it, never a client's request.
    pub is_continuation: bool,
    /// The permission to answer it with a task.
    pub task_mode: TaskMode,
    /// The name of a method that no revision knows; [`Self::method`] has only that fact.
    pub extension: Option<Arc<str>>,
    /// weir's id of this HTTP request, in every error and log line about it.
    pub request: RequestName,
    /// The trace that this call belongs to.
    pub trace: TraceContext,
}

impl Call {
    /// A call with defaults: its client accepts no requests and wants neither progress nor log
    /// messages.
    #[must_use]
    pub fn new(endpoint: EndpointId, method: Method, params: Params, request: RequestName) -> Self {
        Self {
            endpoint,
            method,
            params,
            capabilities: CallCapabilities::default(),
            wants_progress: false,
            log_messages: LogMessages::None,
            session: None,
            input_mode: InputMode::default(),
            resume: None,
            input_responses: None,
            input_refusals: None,
            wants_status_only: false,
            is_continuation: false,
            task_mode: TaskMode::default(),
            extension: None,
            request,
            trace: TraceContext::default(),
        }
    }

    /// The method as the client named it.
    #[must_use]
    pub fn method_name(&self) -> &str {
        self.extension.as_deref().unwrap_or(self.method.as_str())
    }
}

/// The log messages that a client wants with its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogMessages {
    /// No log messages.
    #[default]
    None,
    /// The messages that the server chooses to send.
    ServerChoice,
    /// The messages of this level and of more severe ones.
    From(LogLevel),
}

impl LogMessages {
    /// The least severe level of weir's choice, where weir has to choose in a server's stead.
    pub const CHOSEN_LEVEL: LogLevel = LogLevel::Info;

    /// True if a message of this level is among them.
    #[must_use]
    pub fn include(self, level: LogLevel) -> bool {
        match self {
            Self::None => false,
            Self::ServerChoice => true,
            Self::From(least) => level >= least,
        }
    }
}

/// The form of asking a client for input in the middle of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputMode {
    /// While the call goes on: the reply carries [`crate::PendingQuestion`]s.
    #[default]
    Requests,
    /// By ending the call with the questions; the client makes it again with the answers, and it
    /// goes on.
    Rounds,
}

/// Permission to answer a call with a task: a name by which its result can be fetched later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskMode {
    /// No.
    #[default]
    Never,
    /// The server decides.
    Allowed,
    /// It has to be a task if it can be, kept for so many milliseconds after its beginning.
    Wanted {
        /// The time in milliseconds; if absent, the server decides.
        ttl_ms: Option<u64>,
    },
    /// No, since its client knows no tasks, or its endpoint has none. If the server can answer with a
    /// task only, weir waits for the result in the client's stead.
    AwaitedByWeir,
}

/// The point at which a call goes on that ended with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResumption {
    /// The upstream keeps no state but this, its own `requestState`, and receives it unchanged.
    Upstream(String),
    /// The call still runs: it is parked under this name.
    Parked(ParkedId),
    /// The call is made once more, as it was.
    Again,
}

/// Names a parked call: random, and good for one round. It begins with the generation of the
/// process that parks the call: the number of graceful restarts before that process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParkedId(pub [u8; 16]);

impl ParkedId {
    /// The name of a call that a process of this generation parks.
    #[must_use]
    pub fn new(generation: u32, random: [u8; 16]) -> Self {
        let mut id = random;
        id[..4].copy_from_slice(&generation.to_be_bytes());
        Self(id)
    }

    /// The generation of the process that parked the call.
    #[must_use]
    pub fn generation(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Debug for ParkedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedId").finish_non_exhaustive()
    }
}

/// The requests that a client declared it accepts.
#[derive(Clone, Debug, Default)]
pub struct CallCapabilities {
    /// As a class, not yet cut to the members that weir carries.
    pub class: CapabilityClass,
    /// The client's own `ClientCapabilities` object, if this call had one.
    pub raw: Option<Bytes>,
}

/// The key of a legacy client's session for other crates: opaque, and of no use to open the
/// session.
///
/// It is a digest of the session id, so that the id itself (which opens the session) never leaves
/// front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(pub [u8; 16]);
