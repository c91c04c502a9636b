//! Heads of answers: plain refusals, JSON, event streams.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use opentelemetry::KeyValue;
use weir_core::budget::ByteReservation;
use weir_core::telemetry::instruments;
use weir_wire::write::ObjectWriter;

use crate::body::Body;
use crate::observe::Answer;
use crate::settings::ServerIdentity;
use crate::tally::{Counted, Later, Tally};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A refusal before JSON-RPC: status, and a sentence for a person.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: &'static str,
    /// The `reason` label of the metric.
    pub(crate) reason: &'static str,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, reason: &'static str, text: &'static str) -> Self {
        Self {
            status,
            text,
            reason,
            headers: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Adds a header with a computed value. A text that is no valid header value is left out.
    pub(crate) fn with_value(mut self, name: HeaderName, value: String) -> Self {
        self.headers
            .extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        self
    }

    pub(crate) fn answer(self) -> Answer {
        instruments()
            .refusals
            .add(1, &[KeyValue::new("reason", self.reason)]);
        let mut answer = plain(self.status, self.text);
        answer.headers_mut().extend(self.headers);
        answer
    }
}

/// Counts a use of a feature that 2026-07-28 has deprecated (R286).
pub(crate) fn deprecated(feature: &'static str) {
    instruments()
        .deprecated
        .add(1, &[KeyValue::new("feature", feature)]);
}

/// A plain-text answer with a status and a sentence.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Body::from(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    answer
}

/// 503 for too much load. The body is plain text, so a probing client cannot take it for a legacy
/// server's.
pub(crate) fn overloaded() -> Answer {
    overload().answer()
}

/// The refusal for too much load.
pub(crate) fn overload() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "overloaded",
        "too many requests in flight: try again in a second",
    )
    .with(header::RETRY_AFTER, "1")
}

/// 503 if no further session can be opened or stored. The body is plain text, so a probing client
/// cannot misread it.
pub(crate) fn no_session() -> Answer {
    let text = "no session can be opened now: end those that are done with (DELETE), or try again in a minute";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", text)
        .with(header::RETRY_AFTER, "60")
        .answer()
}

/// 503 for a session that cannot be read now, but may exist: after a 404 its client would begin
/// another one.
pub(crate) fn unreadable_session() -> Answer {
    let text = "sessions cannot be read now: try again in a second";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", text)
        .with(header::RETRY_AFTER, "1")
        .answer()
}

/// 429 for a principal at its limit of sessions: others can still open one.
pub(crate) fn too_many_sessions() -> Answer {
    let text = "you have too many sessions open: end those that are done with (DELETE), or try again in a minute";
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "sessions", text)
        .with(header::RETRY_AFTER, "60")
        .answer()
}

/// A status alone.
pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// One JSON message.
pub(crate) fn json(status: StatusCode, message: Bytes) -> Answer {
    json_body(status, Body::from(message))
}

/// A JSON message with a body that is still produced.
pub(crate) fn json_body(status: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

/// An event stream.
pub(crate) fn events(body: Body) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENTS);
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    answer
}

/// One message, with its status as an answer of its own, and its outcome for the metrics.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
    pub(crate) tally: Tally,
    /// The memory of a large message.
    pub(crate) memory: Option<ByteReservation>,
}

impl Said {
    /// A successful message.
    pub(crate) fn ok(message: Bytes) -> Self {
        Self::new(StatusCode::OK, message, Tally::Ok)
    }

    /// A message without a memory reservation.
    pub(crate) fn new(status: StatusCode, message: Bytes, tally: Tally) -> Self {
        Self {
            status,
            message,
            tally,
            memory: None,
        }
    }

    /// The message as an answer of its own.
    pub(crate) fn answer(self) -> Answer {
        let message = match self.memory {
            Some(memory) => memory.hold(self.message),
            None => self.message,
        };
        counted(json(self.status, message), self.tally)
    }
}

/// Labels the answer with its method and era, for the metrics.
pub(crate) fn labelled(mut answer: Answer, method: &'static str, era: &'static str) -> Answer {
    let labels = &mut answer.body_mut().labels;
    (labels.method, labels.era) = (method, era);
    answer
}

/// Sets the outcome of an answer, if its status does not imply it.
pub(crate) fn counted(mut answer: Answer, tally: Tally) -> Answer {
    if tally != Tally::of_status(answer.status()) {
        answer.extensions_mut().insert(Counted::Now(tally));
    }
    answer
}

/// Sets the outcome of an answer that is known at the end of its body.
pub(crate) fn counted_later(mut answer: Answer, later: Later) -> Answer {
    answer.extensions_mut().insert(Counted::Later(later));
    answer
}

/// The `Implementation` object of weir.
pub(crate) fn server_info(identity: &ServerIdentity) -> Bytes {
    let mut out = BytesMut::new();
    let mut object = ObjectWriter::new(&mut out);
    object.string("name", &identity.name);
    if let Some(title) = &identity.title {
        object.string("title", title);
    }
    object.string("version", &identity.version).end();
    out.freeze()
}
