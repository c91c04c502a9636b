//! The canonical call: one client request, with all that is needed to answer it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use weir_wire::log_level::LogLevel;
use weir_wire::method::Method;
use weir_wire::params::Params;

use crate::capability::CapabilityClass;
use crate::names::EndpointId;
use crate::port::Random;
use crate::trace::{self, ServerSpan};

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
    /// The least severe log messages that the client wants with this call; absent if it wants no
    /// log messages.
    pub log_level: Option<LogLevel>,
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
            log_level: None,
            session: None,
            input_mode: InputMode::default(),
            resume: None,
            input_responses: None,
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
    /// No, since its client knows no tasks. If the server can answer with a task only, weir waits
    /// for the result in the client's stead.
    AwaitedByWeir,
}

/// The point at which a call goes on that ended with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResumption {
    /// The upstream keeps no state but this, its own `requestState`, and receives it unchanged.
    Upstream(String),
    /// The call still runs: it is parked under this name.
    Parked(crate::parked::ParkedId),
    /// The call is made once more, as it was.
    Again,
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

/// weir's own id of a request: 16 hexadecimal characters. It is kept in place, so a name costs no
/// allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestName([u8; 16]);

impl RequestName {
    /// Makes a name from 64 random bits.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 16];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        Self(text)
    }

    /// The bits it was made from.
    #[must_use]
    pub fn bits(&self) -> u64 {
        u64::from_str_radix(self.as_str(), 16).unwrap_or_default()
    }

    /// The name as errors and logs show it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Hexadecimal digits are UTF-8, so the default is never used.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// W3C trace context of a call, as the client gave it (checked) or as weir began it.
#[derive(Clone, Debug, Default)]
pub struct TraceContext {
    /// A valid `traceparent`, if any.
    pub parent: Option<Arc<str>>,
    /// A valid `tracestate`, if any.
    pub state: Option<Arc<str>>,
    /// A valid `baggage`, if any.
    pub baggage: Option<Arc<str>>,
    /// weir's own span of the request, if it is recorded.
    pub span: Option<Arc<ServerSpan>>,
}

impl TraceContext {
    /// This trace, or the other one if this names no trace.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let span = self.span.or_else(|| other.span.clone());
        if self.parent.is_some() {
            return Self { span, ..self };
        }
        Self {
            parent: other.parent.clone(),
            state: other.state.clone(),
            span,
            ..self
        }
    }

    /// The same trace one hop further: the span is one of weir's own, and the flag shows if weir
    /// records it. Each request to an upstream is a step of its own.
    #[must_use]
    pub fn next_hop(self, random: &dyn Random) -> Self {
        if self.parent.is_none() && self.span.is_none() {
            return self;
        }
        let mut span = [0; 8];
        random.fill(&mut span);
        // A span id of zeros is invalid.
        span[7] |= u8::from(span == [0; 8]);
        let (span, flags) = (u64::from_be_bytes(span), u8::from(trace::is_sampled(&self)));
        // `00-<trace>-<span>-<flags>`, checked when it was read.
        let stepped: Option<Arc<str>> = match (&self.span, self.parent.as_deref()) {
            (Some(own), _) => Some(
                format!(
                    "00-{}-{span:016x}-{flags:02x}",
                    HEXLOWER.encode(&own.context().trace)
                )
                .into(),
            ),
            (None, Some(parent)) => parent
                .get(TRACE_ID_RANGE)
                .map(|trace| format!("00-{trace}-{span:016x}-{flags:02x}").into()),
            (None, None) => None,
        };
        Self {
            parent: stepped,
            ..self
        }
    }
}

/// The bytes of the trace id in a `traceparent`.
const TRACE_ID_RANGE: std::ops::Range<usize> = 3..35;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Sevens;

    // Proves R139.
    #[test]
    fn a_trace_goes_on_with_a_span_of_its_own() {
        let parent = |text: &str| TraceContext {
            parent: Some(text.into()),
            ..TraceContext::default()
        };
        let given = parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let stepped = given.clone().next_hop(&Sevens);
        // The sampled flag is weir's to set, and weir does not record this one.
        let expected = "00-0af7651916cd43dd8448eb211c80319c-0707070707070707-00";
        assert_eq!(stepped.parent.as_deref(), Some(expected));
        assert_eq!(TraceContext::default().next_hop(&Sevens).parent, None);
        assert_eq!(TraceContext::default().or(&given).parent, given.parent);
        assert_eq!(stepped.or(&given).parent.as_deref(), Some(expected));
    }

    #[test]
    fn request_name_is_the_hexadecimal_of_all_its_bits() {
        for (bits, text) in [
            (0, "0000000000000000"),
            (0x0123_4567_89ab_cdef, "0123456789abcdef"),
            (u64::MAX, "ffffffffffffffff"),
        ] {
            let name = RequestName::from_bits(bits);
            assert_eq!((name.as_str(), name.bits()), (text, bits));
        }
    }
}
