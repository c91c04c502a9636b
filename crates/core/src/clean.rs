//! Removal of hidden characters from server messages, counted by kind. `weir-clean` has the tables
//! of characters and strings.

use bytes::{Bytes, BytesMut};
use opentelemetry::KeyValue;
use weir_clean::{DocumentKind, REMOVALS, RemovalCounts};
use weir_wire::scan;
use weir_wire::write::ObjectWriter;

use crate::failure::UpstreamError;
use crate::names::UpstreamId;
use crate::telemetry::instruments;

/// A JSON text without hidden characters, and the number of those removed. A text without any is
/// returned unchanged.
#[must_use]
pub fn text(upstream: &UpstreamId, document: DocumentKind, text: Bytes) -> (Bytes, u64) {
    match weir_clean::clean(document, &text) {
        None => (text, 0),
        Some(done) => {
            count(upstream, done.removed);
            (done.bytes.into(), done.removed.total())
        }
    }
}

/// Cleans an error in place. Returns the number of characters removed.
pub fn error(upstream: &UpstreamId, error: &mut UpstreamError) -> u64 {
    let (cleaned, removed) = text(upstream, DocumentKind::Error, error_text(error));
    if removed > 0 {
        take_error_text(error, &cleaned);
    }
    removed
}

/// Message and data of an error as one [`weir_clean::DocumentKind::Error`].
#[must_use]
pub fn error_text(error: &UpstreamError) -> Bytes {
    let mut out = BytesMut::with_capacity(error.message.len() + 32);
    let mut object = ObjectWriter::new(&mut out);
    object.string("message", &error.message);
    if let Some(data) = &error.data {
        object.raw("data", data);
    }
    object.end();
    out.freeze()
}

/// Takes both over from a text that [`error_text`] made.
pub fn take_error_text(error: &mut UpstreamError, text: &Bytes) {
    if let Some(message) = scan::find(text, "message").and_then(|at| scan::string(&text[at])) {
        error.message = message.into_owned();
    }
    error.data = scan::find(text, "data").map(|at| text.slice(at));
}

/// A server's `instructions`, without hidden characters.
#[must_use]
pub fn instructions(upstream: &UpstreamId, given: String) -> String {
    let mut out = BytesMut::with_capacity(given.len() + 32);
    ObjectWriter::new(&mut out)
        .string("instructions", &given)
        .end();
    let (cleaned, removed) = text(upstream, DocumentKind::Instructions, out.freeze());
    if removed == 0 {
        return given;
    }
    let left = scan::find(&cleaned, "instructions").and_then(|at| scan::string(&cleaned[at]));
    left.unwrap_or_default().into_owned()
}

/// Counts removed characters in the metrics.
pub fn count(upstream: &UpstreamId, removed: RemovalCounts) {
    for removal in &REMOVALS {
        let characters = removed.of(removal.kind);
        if characters > 0 {
            let labels = [
                KeyValue::new("upstream", upstream.to_string()),
                KeyValue::new("kind", removal.name),
            ];
            instruments().outputs_cleaned.add(characters, &labels);
        }
    }
}
