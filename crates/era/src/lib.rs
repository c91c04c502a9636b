//! The bridge between protocol eras, sans-IO: legacy requests are lifted into canonical calls,
//! canonical calls are lowered for legacy servers, results are rendered for the client's revision.
//!
//! This crate opens no socket and reads no clock: time, keys and randomness are arguments.

pub mod asks;
pub mod capabilities;
pub mod carry;
pub mod hop;
pub mod lift;
pub mod lower;
pub mod render;
pub mod session;
pub mod state;
pub mod structured;
pub mod tasks;
