//! MCP and JSON-RPC as they are on the wire.
//!
//! Other crates use it to handle messages without decoding them. Parts that a gateway need not
//! understand stay raw bytes; the others are read once, by a bounded, non-recursive scan. This
//! crate does no IO, reads no clock, draws no random numbers and has no knowledge of the sender or
//! receiver of a message.

pub mod code;
mod digest;
pub mod error_object;
pub mod fold;
pub mod fuzzing;
pub mod header;
pub mod http2;
pub mod id;
mod lexer;
pub mod log_level;
pub mod message;
pub mod meta;
pub mod method;
pub mod params;
pub mod revision;
mod run;
pub mod scan;
pub mod splice;
pub mod splitter;
pub mod sse;
#[cfg(test)]
mod testing;
mod utf8;
pub mod write;

pub use error_object::ErrorObject;
pub use id::RequestId;
pub use log_level::LogLevel;
pub use message::{Incoming, Message, MessageError, Notification, Request, Response};
pub use method::{Direction, Method, MethodName};
pub use params::{Meta, Params};
pub use revision::Revision;
pub use scan::Limits;
