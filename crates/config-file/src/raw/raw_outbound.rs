//! `auth` of an upstream as written in the file: weir's credentials at the upstream.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;

/// weir's credentials at an upstream. The client's own token is never forwarded.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawOutbound {
    /// The source of tokens. Default `none`: no tokens, only `headers`. With `token_exchange` the
    /// client needs the grant `client_credentials`, too: lists, probes and subscriptions to resources
    /// use weir's own tokens. A subscription requires that the caller may read the resource.
    pub mode: Option<RawOutboundMode>,
    /// The issuer identifier of the authorization server. Its metadata names the token endpoint.
    /// The metadata must state the same issuer; a slash after the host makes no difference.
    pub issuer: Option<String>,
    /// The token endpoint, in place of `issuer`. No metadata is fetched.
    pub token_endpoint: Option<String>,
    /// Allows a plain `http` URL outside loopback for `issuer` or `token_endpoint`. Any host in
    /// between then sees secrets and tokens. Default `false`.
    pub allow_http: Option<bool>,
    /// The client id of weir at the authorization server.
    pub client_id: Option<String>,
    /// The client secret of weir. Keep the secret out of the file: `${SECRET}`.
    pub client_secret: Option<ConfigSecret>,
    /// The method that sends the client secret. Default: from the issuer's metadata, or `basic` if
    /// the metadata has no method.
    pub client_auth: Option<RawSecretPlace>,
    /// Scopes to request for every token.
    pub scopes: Option<Vec<String>>,
    /// Scopes that are added when the upstream demands them. Scopes that are not listed here are
    /// never added. Without `scopes`, the request also has the scopes that the authorization server
    /// stated for the last token (`scope` of its response); if it stated none, it asks for the
    /// added scopes alone.
    pub step_up: Option<Vec<String>>,
    /// The resource of the tokens (`resource` of RFC 8707). Default: the upstream's own resource
    /// identifier, or else its URL.
    pub resource: Option<String>,
    /// The `audience` of a token exchange, for an authorization server that wants one besides the
    /// resource.
    pub audience: Option<String>,
    /// The type of callers' tokens in a token exchange. Default `access_token`.
    pub subject_token: Option<RawSubjectToken>,
}

/// The source of the tokens for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawOutboundMode {
    /// No tokens.
    None,
    /// The `headers` of the upstream, which must be present.
    Headers,
    /// weir's own tokens, by the client credentials grant.
    ClientCredentials,
    /// The caller's token for weir, exchanged for one for the upstream (RFC 8693). Lists and probes
    /// use weir's own.
    TokenExchange,
}

/// The method that sends the client secret to the token endpoint.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSecretPlace {
    /// In the `Authorization` header.
    Basic,
    /// In the form body.
    Post,
}

/// The type of a token that is exchanged.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawSubjectToken {
    /// An access token.
    AccessToken,
    /// A JWT, for authorization servers that want that type.
    Jwt,
}
