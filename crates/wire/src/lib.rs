//! MCP and JSON-RPC as they are on the wire.
//!
//! Other crates use it to handle messages without decoding them. Parts that a gateway need not
//! understand stay raw bytes; the others are read once, by a bounded, non-recursive scan. This
//! crate does no IO, reads no clock, draws no random numbers and has no knowledge of the sender or
//! receiver of a message.

pub mod answer_shape;
pub mod case_folding;
pub mod envelope_outline;
pub mod error_code;
pub mod error_object;
pub mod fuzzing;
pub mod header;
pub mod http2_frames;
pub mod id;
mod json_digest;
mod json_lexer;
mod kept_bytes;
pub mod log_level;
pub mod message;
pub mod meta;
pub mod method;
pub mod params;
mod plain_runs;
pub mod related_task;
pub mod revision;
pub mod scan;
pub mod splice;
pub mod splitter;
pub mod sse;
#[cfg(test)]
mod testing;
pub mod unknown_tool;
mod utf8;
pub mod write;

pub use envelope_outline::EnvelopeOutline;
pub use error_object::ErrorObject;
pub use id::RequestId;
pub use log_level::LogLevel;
pub use message::{IncomingMessage, Message, MessageError, Notification, Request, Response};
pub use method::{Method, MethodName};
pub use params::{Meta, Params};
pub use revision::{Era, Revision};
pub use scan::JsonLimits;
