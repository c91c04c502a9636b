//! Authentication, authorization and rate limits: the implementations of core's deciding ports.
//!
//! This crate decides and mints no principal: a [`weir_core::Principal`] is made by core alone,
//! from the result of a verifier. It opens no socket; all fetches go through a port.

mod api_key;
mod auth_failure;
mod blocklist;
mod certificate;
mod claimed_caller;
mod credentials;
mod introspect;
pub(crate) mod jwks;
pub mod limit;
mod mtls;
pub mod rules;
pub mod settings;
mod strict_json;
pub(crate) mod token;
mod verifier_ports;

pub use api_key::digest as api_key_digest;
pub use blocklist::BlocklistAuthorizer;
pub use certificate::{CertificateValidity, certificate_validity};
pub use claimed_caller::{ClaimedCaller, claimed_caller};
pub use credentials::{AnsweringIssuer, CredentialVerifier, IssuerStatus, examine_issuer};
pub use verifier_ports::VerifierPorts;
