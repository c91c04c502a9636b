//! The bridge between protocol eras, sans-IO: legacy requests are lifted into canonical calls,
//! canonical calls are lowered for legacy servers, results are rendered for the client's revision.
//!
//! This crate opens no socket and reads no clock: time, keys and randomness are arguments.

pub mod call_progress;
pub mod capabilities;
pub mod capability_forwarding;
pub mod extensions;
pub mod lift;
pub mod lower;
pub mod render;
pub mod request_state;
pub mod server_questions;
pub mod session;
pub mod structured;
pub mod subscription_filter;
pub mod tasks;
pub mod upstream_messages;
