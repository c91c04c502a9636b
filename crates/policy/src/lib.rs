//! Who are you, may you, how often: what stands behind core's deciding ports.
//!
//! This crate decides and mints nothing: a [`weir_core::Principal`] is made by core alone, out of
//! what a verifier found. It opens no socket; whatever it must fetch comes through a port.

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
