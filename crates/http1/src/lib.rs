//! HTTP/1.1 messages as a client writes and reads them (RFC 9112): the head of a request, the head
//! of a response and its body. No IO: bytes in, bytes out.
//!
//! The parser is strict where the RFC asks for it. A property test of `weir-http-client` compares
//! it with hyper; the fuzz target `http1_response` cuts responses at any byte.

mod chunk_decoder;
pub mod fuzzing;
mod message_head;
mod outgoing_request;
mod response_framing;

pub use message_head::{ResponseHead, read_response_head, write_request_head};
pub use outgoing_request::{Destination, HeaderField, OutgoingRequest};
pub use response_framing::ResponseFraming;

/// The reason for which bytes are not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not valid HTTP: {0}")]
pub struct MalformedResponse(pub &'static str);
