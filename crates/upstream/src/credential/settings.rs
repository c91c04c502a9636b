//! What the operator says about weir's tokens for one server. Already checked.

use crate::settings::SecretText;

/// An OAuth client of weir's at an authorization server, and what it asks tokens for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth {
    /// Who gives tokens.
    pub authority: Authority,
    /// The client's id there.
    pub client_id: String,
    /// Its secret.
    pub client_secret: SecretText,
    /// How it shows the secret.
    pub client_auth: ClientAuth,
    /// The scopes every token is asked for; none: what the authorization server gives by itself.
    pub scopes: Vec<String>,
    /// Scopes that are added when the server asks for them. No others are, whatever it asks for.
    pub step_up: Vec<String>,
    /// The `resource` (RFC 8707) tokens are for; the server's own identifier where not given.
    pub resource: Option<String>,
    /// Calls are made with the caller's token, exchanged; `None`: with the client's own.
    pub exchange: Option<Exchange>,
}

/// Who gives tokens. Credentials go there and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// An issuer, whose metadata names its token endpoint (RFC 8414, OpenID Connect Discovery).
    Issuer(String),
    /// The token endpoint itself: nothing is looked for.
    TokenEndpoint(String),
}

/// How a client shows its secret (RFC 6749, 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// As the authorization server's metadata says; `Basic` where it says nothing.
    #[default]
    Discovered,
    /// `client_secret_basic`.
    Basic,
    /// `client_secret_post`.
    Post,
}

/// Token exchange (RFC 8693).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The `audience`, where the authorization server wants one beside the `resource`.
    pub audience: Option<String>,
    /// What the callers' tokens are: `subject_token_type`.
    pub subject_type: String,
}

impl Exchange {
    /// The usual `subject_token_type`.
    pub const ACCESS_TOKEN: &'static str = "urn:ietf:params:oauth:token-type:access_token";
}
