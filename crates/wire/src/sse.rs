//! Server-sent events: framing only (WHATWG HTML, "Server-sent events").
//!
//! [`SseDecoder`] is incremental and hands `data` on as it arrives, so that one event of 50 MiB
//! passes in bounded memory. [`EventDecoder`] assembles events whole, up to a cap. Writing is
//! [`write_event`], [`write_comment`] and [`write_retry`], or [`StreamEncoder`] for data that comes
//! in chunks. [`ResumePoint`] keeps the marks of a stream for a client that resumes it. The meaning
//! of an event and reconnecting are not in here.

pub(crate) mod decoder;
pub(crate) mod encoder;
pub(crate) mod event_decoder;
pub(crate) mod resume_point;

pub use decoder::{SseCaps, SseDecoder, SseError, SseItem};
pub use encoder::{StreamEncoder, write_comment, write_event, write_opening, write_retry};
pub use event_decoder::{DecodedEvent, EventDecoder};
pub use resume_point::{MAX_RETRY_WAIT, ResumePoint};

/// True for the type of an event that carries a message of MCP: none, which means `message`, or
/// `message` itself. A client dispatches an event by its type and ignores types that it does not
/// know.
#[must_use]
pub fn is_message(event: Option<&str>) -> bool {
    matches!(event, None | Some("message"))
}

#[cfg(test)]
mod tests;
