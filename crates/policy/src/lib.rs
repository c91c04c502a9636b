//! Who are you, may you, how often: what stands behind core's deciding ports.
//!
//! This crate decides and mints nothing: a [`weir_core::Principal`] is made by core alone, out of what a verifier
//! found. It opens no socket; whatever it must fetch comes through a port.

pub mod audit;
pub mod limit;
mod open;

pub use audit::{LogAudit, Silent};
pub use open::{AllowAll, Open, Unlimited};
