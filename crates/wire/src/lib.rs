//! MCP and JSON-RPC as they are on the wire.
//!
//! This crate exists so that every other one can speak of messages without decoding them: what a
//! gateway need not understand stays raw bytes, and what it must understand is read once, by a
//! bounded, non-recursive scan. It does no IO, holds no clock, draws no random numbers and knows
//! nothing about who sends what to whom.

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
