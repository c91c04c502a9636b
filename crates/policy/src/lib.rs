//! Authentication, authorization and rate limits: the implementations of core's deciding ports.
//!
//! This crate decides and mints no principal: a [`weir_core::Principal`] is made by core alone,
//! from the result of a verifier. It opens no socket; all fetches go through a port.

mod api_key;
pub mod audit;
mod blocked;
mod certificate;
mod claimed;
mod credentials;
mod introspect;
mod jwks;
pub mod limit;
mod mtls;
mod open;
pub mod rules;
pub mod settings;
mod strict;
mod token;

pub use api_key::digest as api_key_digest;
pub use audit::{LogAudit, Silent};
pub use blocked::Blocked;
pub use certificate::{CertificateValidity, certificate_validity};
pub use claimed::{Claimed, claimed};
pub use credentials::{Credentials, IssuerStatus, Ports};
pub use open::{AllowAll, Open, Unlimited};
