//! The operator's settings for weir's tokens at one server. Already checked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use weir_core::port::BoxFuture;
use weir_upstream_core::secret::SecretText;

/// An OAuth client of weir at an authorization server, and the parameters of its token requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOAuth {
    /// The authorization server or other source of tokens.
    pub authority: TokenAuthority,
    /// The client's id there.
    pub client_id: String,
    /// The client's secret.
    pub client_secret: SecretText,
    /// The client's authentication method.
    pub client_auth: ClientAuthMethod,
    /// The scopes of every token request. If empty, the authorization server decides.
    pub scopes: Vec<String>,
    /// Scopes that may be added when the server asks for them. No other scope is ever added.
    pub step_up: Vec<String>,
    /// The `resource` (RFC 8707) of tokens. Default: the server's own identifier.
    pub resource: Option<String>,
    /// The exchange of callers' tokens. If absent, calls use the client's own token.
    pub exchange: Option<TokenExchange>,
}

/// The source of tokens. Credentials are sent there and to no other server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAuthority {
    /// An issuer, with metadata that names its token endpoint (RFC 8414, OpenID Connect Discovery).
    Issuer(String),
    /// The token endpoint itself, without discovery.
    TokenEndpoint(String),
    /// A keeper of tokens in this process: no token is requested, and the other settings are not
    /// used.
    Provider(SharedTokenProvider),
}

/// A keeper of the tokens for one server, such as the login of the person who runs weir.
pub trait TokenProvider: Send + Sync {
    /// Returns the token to use now. If absent, requests go without one. `is_refused` is true if
    /// the server refused the last token.
    ///
    /// # Errors
    /// The cause, for operators: there may be a token, and it cannot be had now.
    fn token(&self, is_refused: bool) -> BoxFuture<'_, Result<Option<ProvidedToken>, String>>;

    /// Returns the advice to a caller after a refusal by the server.
    fn advice(&self) -> String;
}

/// A token and its lifetime.
pub struct ProvidedToken {
    /// The whole `Authorization` header. Sensitive.
    pub header: HeaderValue,
    /// The lifetime from now on; absent if unknown.
    pub lifetime: Option<Duration>,
}

impl fmt::Debug for ProvidedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProvidedToken(<secret>)")
    }
}

/// A shared keeper. Two are equal if they are the same one.
#[derive(Clone)]
pub struct SharedTokenProvider(pub Arc<dyn TokenProvider>);

impl PartialEq for SharedTokenProvider {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedTokenProvider {}

impl fmt::Debug for SharedTokenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTokenProvider(<secret>)")
    }
}

impl UpstreamOAuth {
    /// Makes settings that use the tokens of a keeper in this process.
    #[must_use]
    pub fn from_provider(keeper: SharedTokenProvider) -> Self {
        Self {
            authority: TokenAuthority::Provider(keeper),
            client_id: String::new(),
            client_secret: SecretText::new(""),
            client_auth: ClientAuthMethod::default(),
            scopes: Vec::new(),
            step_up: Vec::new(),
            resource: None,
            exchange: None,
        }
    }

    /// Returns the advice to a caller after a refusal by the server; absent if only the operator
    /// can mend it.
    pub fn advice(&self) -> Option<String> {
        match &self.authority {
            TokenAuthority::Provider(keeper) => Some(keeper.0.advice()),
            TokenAuthority::Issuer(_) | TokenAuthority::TokenEndpoint(_) => None,
        }
    }
}

/// The client authentication method (RFC 6749, 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuthMethod {
    /// The method of the authorization server's metadata. Default: `Basic`.
    #[default]
    Discovered,
    /// `client_secret_basic`.
    Basic,
    /// `client_secret_post`.
    Post,
}

/// Token exchange (RFC 8693).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenExchange {
    /// The `audience`, for an authorization server that wants one beside the `resource`.
    pub audience: Option<String>,
    /// The type of the callers' tokens: `subject_token_type`.
    pub subject_type: String,
}

impl TokenExchange {
    /// The usual `subject_token_type`.
    pub const ACCESS_TOKEN: &'static str = "urn:ietf:params:oauth:token-type:access_token";
}
