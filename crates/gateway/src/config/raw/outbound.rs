//! `auth` of an upstream as it is written: how weir proves itself there.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Secret;

/// How weir proves itself to a server. The client's own token never goes there.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawOutbound {
    /// Where the tokens come from. Default `none`: from nowhere but `headers`.
    pub(crate) mode: Option<RawOutboundMode>,
    /// The authorization server, as it names itself. Its metadata says where tokens are to be had.
    pub(crate) issuer: Option<String>,
    /// The token endpoint itself, in place of `issuer`: nothing is looked for.
    pub(crate) token_endpoint: Option<String>,
    /// Take an `http` URL that is not on loopback for either: whoever is between sees secrets and
    /// tokens.
    pub(crate) allow_http: Option<bool>,
    /// The id of weir's client there.
    pub(crate) client_id: Option<String>,
    /// Its secret. Keep it out of the file: `${SECRET}`.
    pub(crate) client_secret: Option<Secret>,
    /// How the secret is shown. Default: as the issuer's metadata says, `basic` where it says
    /// nothing.
    pub(crate) client_auth: Option<RawSecretPlace>,
    /// Scopes that every token is asked for.
    pub(crate) scopes: Option<Vec<String>>,
    /// Scopes that are added where the server asks for them. No others are, whatever it asks for.
    pub(crate) step_up: Option<Vec<String>>,
    /// What tokens are for (`resource` of RFC 8707). Default: what the server calls itself, else
    /// its URL.
    pub(crate) resource: Option<String>,
    /// The `audience` of an exchange, where the authorization server wants one beside the resource.
    pub(crate) audience: Option<String>,
    /// What callers' tokens are, for an exchange. Default `access_token`.
    pub(crate) subject_token: Option<RawSubjectToken>,
}

/// Where a server's tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawOutboundMode {
    /// There are none.
    None,
    /// From `headers`, which must then be there.
    Headers,
    /// weir's own, by the client credentials grant.
    ClientCredentials,
    /// Each caller's, in exchange for the token it showed to weir (RFC 8693). Lists and probes use
    /// weir's own.
    TokenExchange,
}

/// How a client secret is shown.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSecretPlace {
    /// In the `Authorization` header.
    Basic,
    /// In the form.
    Post,
}

/// What a token that is exchanged is.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawSubjectToken {
    /// An access token.
    AccessToken,
    /// A JWT, for authorization servers that want that said.
    Jwt,
}
