//! The parts of a response body, and the errors that end its reading.

use bytes::Bytes;
use weir_core::hold::HoldReservation;
use weir_http_client::UpstreamHttpError;
use weir_wire::splitter::ResponseEnd;

use crate::held_blocks::HeldBlocks;

/// The text of a skipped large event in the log.
pub(crate) const LARGE_EVENT: &[u8] = b"(more than 64 KiB)";

/// One part of a response body.
#[derive(Debug)]
pub(crate) enum ResponsePart {
    /// A whole message, or a batch of them.
    Message(Bytes),
    /// A large response to the named request. Its `result` follows as [`ResponsePart::Result`].
    Large,
    /// Bytes of that result.
    Result(Bytes),
    /// The end of that response: its id, and the last bytes of its result.
    LargeEnd(Box<ResponseEnd>),
    /// A large response that was held to its end.
    Held(Box<HeldLargeResult>),
    /// A large response to another request, which was skipped.
    Foreign,
    /// A large event that is no message, which was skipped.
    Unreadable,
    /// An event's id, for resumption, and the server's reconnection time, if it sent one.
    Mark {
        id: Option<String>,
        retry: Option<u64>,
    },
}

/// The error that ends the reading of a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseReadError {
    /// The connection was lost before the end.
    #[error("the connection was lost in the middle of the answer")]
    Lost(#[source] UpstreamHttpError),
    /// More bytes than a response may have.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The partially forwarded result belongs to another request.
    #[error("the answer is to another request")]
    Foreign,
    /// The body is not valid.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

/// A large result that was held to its end.
#[derive(Debug)]
pub(crate) struct HeldLargeResult {
    pub(crate) blocks: HeldBlocks,
    pub(crate) end: Box<ResponseEnd>,
    /// Kept until the last byte was forwarded.
    #[expect(dead_code, reason = "its drop is what it is kept for")]
    pub(crate) reservation: Option<HoldReservation>,
}
