//! Answers and their heads: plain text, JSON, event streams. The statuses are chosen in
//! [`crate::failure`].

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use opentelemetry::KeyValue;
use weir_core::budget::ByteReservation;
use weir_core::telemetry::instruments;
use weir_wire::header::{EVENTS, JSON};
use weir_wire::write::ObjectWriter;

use crate::http::body::{HttpAnswer, ResponseBody};
use crate::request::message_labels::MessageLabels;
use crate::request::outcome::{PendingOutcome, RequestOutcome, ResponseOutcome};
use crate::settings::ServerIdentity;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// A proxy that compresses a stream would hold the end of each event back.
const NO_CACHE_NO_TRANSFORM: HeaderValue = HeaderValue::from_static("no-cache, no-transform");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Counts a use of a feature that 2026-07-28 has deprecated (R286).
pub fn count_deprecated(feature: &'static str) {
    instruments()
        .deprecated
        .add(1, &[KeyValue::new("feature", feature)]);
}

/// A plain-text answer with a status and a sentence.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> HttpAnswer {
    let mut answer = Response::new(ResponseBody::from(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    answer
}

/// A status alone.
pub(crate) fn empty(status: StatusCode) -> HttpAnswer {
    let mut answer = Response::new(ResponseBody::empty());
    *answer.status_mut() = status;
    answer
}

/// A JSON message.
pub(crate) fn json(status: StatusCode, body: ResponseBody) -> HttpAnswer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

/// An event stream.
pub fn events(body: ResponseBody) -> HttpAnswer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(header::CACHE_CONTROL, NO_CACHE_NO_TRANSFORM);
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    answer
}

/// One message, with its status as an answer of its own, and its outcome for the metrics.
#[derive(Debug)]
pub struct RenderedMessage {
    /// The status of an answer with this message alone.
    pub status: StatusCode,
    /// The JSON text.
    pub message: Bytes,
    /// The outcome for the metrics.
    pub outcome: RequestOutcome,
    /// The memory of a large message.
    pub memory: Option<ByteReservation>,
}

impl RenderedMessage {
    /// A message without a memory reservation.
    pub(crate) fn new(status: StatusCode, message: Bytes, outcome: RequestOutcome) -> Self {
        Self {
            status,
            message,
            outcome,
            memory: None,
        }
    }

    /// The message as an answer of its own.
    pub fn into_answer(self) -> HttpAnswer {
        let message = match self.memory {
            Some(memory) => memory.hold(self.message),
            None => self.message,
        };
        with_outcome(json(self.status, message.into()), self.outcome)
    }
}

/// Labels the answer for the metrics.
pub fn with_labels(mut answer: HttpAnswer, labels: MessageLabels) -> HttpAnswer {
    answer.body_mut().labels.message = labels;
    answer
}

/// Sets the outcome of an answer, if its status does not imply it.
pub fn with_outcome(mut answer: HttpAnswer, outcome: RequestOutcome) -> HttpAnswer {
    if outcome != RequestOutcome::of_status(answer.status()) {
        answer
            .extensions_mut()
            .insert(ResponseOutcome::Now(outcome));
    }
    answer
}

/// Sets the outcome of an answer that is known at the end of its body.
pub fn with_pending_outcome(mut answer: HttpAnswer, later: PendingOutcome) -> HttpAnswer {
    answer
        .extensions_mut()
        .insert(ResponseOutcome::Later(later));
    answer
}

/// The `Implementation` object of weir.
pub fn server_info(identity: &ServerIdentity) -> Bytes {
    let mut out = BytesMut::new();
    let mut object = ObjectWriter::new(&mut out);
    object.string("name", &identity.name);
    if let Some(title) = &identity.title {
        object.string("title", title);
    }
    object.string("version", &identity.version).end();
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_must_neither_buffer_nor_compress_streams() {
        let answer = events(ResponseBody::empty());
        let header = |name: &HeaderName| answer.headers().get(name).map(HeaderValue::as_bytes);
        assert_eq!(
            header(&header::CACHE_CONTROL),
            Some(&b"no-cache, no-transform"[..])
        );
        assert_eq!(header(&BUFFERING), Some(&b"no"[..]));
    }
}
