//! OAuth as a client reads and writes it: challenges of servers, metadata, forms with client
//! authentication, token responses. Texts in, values out; no IO.
//!
//! Three parts of weir are OAuth clients: its own accounts at upstreams, the login of a person at a
//! server, and the introspection of tokens. Each has its own HTTP client, limits and errors, and
//! here are the formats that they share. A document of another party is read for the members that
//! its reader needs; a wrong type of another member does no harm.

mod bearer_challenge;
mod form_request;
mod metadata;
mod optional_member;
mod token_response;

pub use bearer_challenge::BearerChallenge;
pub use form_request::{ClientAuthentication, FormRequest};
pub use metadata::{
    AuthorizationServerMetadata, ProtectedResourceMetadata, is_same_issuer, quoted_identifier,
    resource_metadata_urls, server_metadata_urls,
};
pub use optional_member::{null_as_default, optional_text, optional_url};
pub use token_response::{TokenResponse, error_code, read_lifetime};
