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

/// A canonical call. It is shaped like the newest revision: whatever a session or a header said is
/// on the call itself.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where the client sent it.
    pub endpoint: EndpointId,
    /// What it asks for.
    pub method: Method,
    /// The client's own `params`, byte for byte, with a view of the members weir knows.
    pub params: Params,
    /// What the client can be asked for during this call.
    pub capabilities: Capabilities,
    /// True if the client gave a progress token. The token itself stays in front: every hop mints
    /// its own.
    pub wants_progress: bool,
    /// The least severe log messages the client wants to see with this call; `None`: none at all.
    pub log_level: Option<LogLevel>,
    /// The client's session, where it has one: upstream sessions of the `session` kind are keyed by
    /// it.
    pub session: Option<SessionKey>,
    /// How the client is asked for input that the call needs on its way.
    pub asked: AskedBy,
    /// Where the call goes on, where it ended with a question before. What stands in `params` as
    /// `requestState` is weir's sealed text and means nothing to the upstream.
    pub resume: Option<Resume>,
    /// The `inputResponses` object that weir gathered for the client. `None`: what stands in
    /// `params` counts.
    pub answers: Option<Bytes>,
    /// Whether it may be answered with a task.
    pub as_task: AsTask,
    /// The method, where no revision knows it: [`Self::method`] says only that.
    pub extension: Option<Arc<str>>,
    /// weir's id of this HTTP request, in every error and log line about it.
    pub request: RequestName,
    /// The trace this call belongs to.
    pub trace: Trace,
}

impl Call {
    /// A call of which nothing more is known: its client cannot be asked for anything and wants to
    /// be told nothing.
    #[must_use]
    pub fn new(endpoint: EndpointId, method: Method, params: Params, request: RequestName) -> Self {
        Self {
            endpoint,
            method,
            params,
            capabilities: Capabilities::default(),
            wants_progress: false,
            log_level: None,
            session: None,
            asked: AskedBy::default(),
            resume: None,
            answers: None,
            as_task: AsTask::default(),
            extension: None,
            request,
            trace: Trace::default(),
        }
    }

    /// The method as the client named it.
    #[must_use]
    pub fn method_name(&self) -> &str {
        self.extension.as_deref().unwrap_or(self.method.as_str())
    }
}

/// How a client is asked for input in the middle of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskedBy {
    /// While the call goes on: the reply carries [`crate::Ask`]s.
    #[default]
    Requests,
    /// By ending the call with the questions; the client makes it again with the answers, and it
    /// goes on.
    Rounds,
}

/// Whether a call may be answered with a task: a name under which its result can be had later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsTask {
    /// No.
    #[default]
    Never,
    /// The server decides.
    Taken,
    /// It has to be, and is to be kept for so many milliseconds after its beginning, if it can be.
    Wanted {
        /// `None`: as long as the server likes.
        ttl_ms: Option<u64>,
    },
    /// No, but its client knows of no tasks: what can be nothing else is waited for in its stead.
    Driven,
}

/// Where a call goes on that ended with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The upstream keeps nothing but this, its own `requestState`, and gets it back as it was.
    Upstream(String),
    /// The call still runs: it is parked under this name.
    Parked(crate::parked::ParkedId),
    /// The call is made once more, as it was.
    Again,
}

/// What a client declared that it can be asked for.
#[derive(Clone, Debug, Default)]
pub struct Capabilities {
    /// As a class, not yet cut to what weir carries.
    pub class: CapabilityClass,
    /// The client's own words (a `ClientCapabilities` object), where it said any on this call.
    pub raw: Option<Bytes>,
}

/// A legacy client's session as other crates see it: an opaque key without power.
///
/// It is a digest of the session id, so that the id itself (which opens the session) never leaves
/// front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(pub [u8; 16]);

/// weir's own id of a request: 16 hexadecimal characters, kept in place: a name costs no
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

    /// The name as it stands in errors and logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Hexadecimal digits are UTF-8, so the default is never seen.
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
pub struct Trace {
    /// A valid `traceparent`, if any.
    pub parent: Option<Arc<str>>,
    /// A valid `tracestate`, if any.
    pub state: Option<Arc<str>>,
    /// A valid `baggage`, if any.
    pub baggage: Option<Arc<str>>,
    /// weir's own span of the request, where it is told of.
    pub span: Option<Arc<ServerSpan>>,
}

impl Trace {
    /// This one, or where it names no trace, the other's.
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

    /// The same trace one hop further: the span is one of weir's own, and the flag says whether
    /// weir tells of it. Each request to an upstream is a step of its own.
    #[must_use]
    pub fn step(self, random: &dyn Random) -> Self {
        if self.parent.is_none() && self.span.is_none() {
            return self;
        }
        let mut span = [0; 8];
        random.fill(&mut span);
        // A span of zeros is none.
        span[7] |= u8::from(span == [0; 8]);
        let (span, flags) = (u64::from_be_bytes(span), u8::from(trace::is_told(&self)));
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
                .get(TRACE)
                .map(|trace| format!("00-{trace}-{span:016x}-{flags:02x}").into()),
            (None, None) => None,
        };
        Self {
            parent: stepped,
            ..self
        }
    }
}

/// Where the trace stands in a `traceparent`.
const TRACE: std::ops::Range<usize> = 3..35;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Sevens;

    #[test]
    fn r139_a_trace_goes_on_with_a_span_of_its_own() {
        let parent = |text: &str| Trace {
            parent: Some(text.into()),
            ..Trace::default()
        };
        let given = parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let stepped = given.clone().step(&Sevens);
        // Whether it is told of is for weir to say, and weir does not.
        let expected = "00-0af7651916cd43dd8448eb211c80319c-0707070707070707-00";
        assert_eq!(stepped.parent.as_deref(), Some(expected));
        assert_eq!(Trace::default().step(&Sevens).parent, None);
        assert_eq!(Trace::default().or(&given).parent, given.parent);
        assert_eq!(stepped.or(&given).parent.as_deref(), Some(expected));
    }

    #[test]
    fn a_request_is_named_by_all_its_bits() {
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
