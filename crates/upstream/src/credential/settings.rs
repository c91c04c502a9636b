//! What the operator says about weir's tokens for one server. Already checked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use weir_core::port::Fut;

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
    /// A keeper of tokens in this process: nothing is asked for, and the other settings mean
    /// nothing.
    Keeper(TokenKeeper),
}

/// A keeper of the tokens for one server, such as the login of the person who runs weir.
pub trait KeepsTokens: Send + Sync {
    /// The token to use now; `None`: requests go without one. `is_refused` says that the server did
    /// not take the last one.
    fn token(&self, is_refused: bool) -> Fut<'_, Option<KeptToken>>;

    /// What a caller is told to do where the server refuses.
    fn advice(&self) -> String;
}

/// A token, and for how long it is good.
pub struct KeptToken {
    /// The whole `Authorization` header. Sensitive.
    pub header: HeaderValue,
    /// From now on; `None` where that is not known.
    pub lifetime: Option<Duration>,
}

impl fmt::Debug for KeptToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptToken(<secret>)")
    }
}

/// A shared keeper. Two are equal if they are the same one.
#[derive(Clone)]
pub struct TokenKeeper(pub Arc<dyn KeepsTokens>);

impl PartialEq for TokenKeeper {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TokenKeeper {}

impl fmt::Debug for TokenKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKeeper(<secret>)")
    }
}

impl OAuth {
    /// The tokens of a keeper.
    #[must_use]
    pub fn kept_by(keeper: TokenKeeper) -> Self {
        Self {
            authority: Authority::Keeper(keeper),
            client_id: String::new(),
            client_secret: SecretText::new(""),
            client_auth: ClientAuth::default(),
            scopes: Vec::new(),
            step_up: Vec::new(),
            resource: None,
            exchange: None,
        }
    }

    /// What a caller is told to do where the server refuses; `None` where that is the operator's
    /// matter.
    pub(crate) fn advice(&self) -> Option<String> {
        match &self.authority {
            Authority::Keeper(keeper) => Some(keeper.0.advice()),
            Authority::Issuer(_) | Authority::TokenEndpoint(_) => None,
        }
    }
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
