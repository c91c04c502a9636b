//! `auth`: the authentication of clients.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;
use crate::raw::OrderedMap;
use crate::raw::Time;

/// The authentication of clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAuth {
    /// The credentials that a client needs. `none`: no credentials, the same as without `auth`.
    /// `oauth`: a token of one of the `issuers`, or another credential listed here. `required`: any
    /// one of the credentials listed here.
    pub mode: Option<String>,
    /// Confirms access without credentials: every caller that reaches the port may call every tool.
    /// Must be `true` if `mode: none` serves other machines, and for a reload that removes
    /// credentials.
    #[schemars(extend("x-protection" = "none"))]
    pub allow_anyone: Option<bool>,
    /// The issuers of accepted tokens.
    #[schemars(extend("x-protection" = "none"))]
    pub issuers: Option<Vec<RawIssuer>>,
    /// The tolerated difference between the clocks of issuers and weir. Default `30s`, at most
    /// `5m`.
    #[schemars(extend("x-protection" = "none"))]
    pub leeway: Option<Time>,
    /// Scopes that include others: `{ admin: [read, write] }`.
    #[schemars(extend("x-protection" = "none below"))]
    pub scope_implies: Option<OrderedMap<Vec<String>>>,
    /// Keys of machines without OAuth, in the format that `weir apikey NAME` prints.
    #[schemars(extend("x-protection" = "none"))]
    pub api_keys: Option<Vec<RawApiKey>>,
    /// Client certificates as credentials. `tls.client_ca` names the authorities that sign them.
    #[schemars(extend("x-protection" = "none below"))]
    pub mtls: Option<RawCertificates>,
}

/// An issuer of accepted tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawIssuer {
    /// The `iss` of its tokens, compared character by character. Its metadata is discovered from
    /// here.
    #[schemars(extend("x-protection" = "none"))]
    pub issuer: Option<String>,
    /// The URL of its key set (JWKS). Default: from its metadata (RFC 8414, or OpenID discovery).
    #[schemars(extend("x-protection" = "none"))]
    pub jwks_uri: Option<String>,
    /// Asks the issuer about each token (RFC 7662) instead of checking signatures.
    #[schemars(extend("x-protection" = "none below"))]
    pub introspection: Option<RawIntrospection>,
    /// The accepted signature algorithms: any of RS256, RS384, RS512, PS256, PS384, PS512, ES256,
    /// ES384, EdDSA. Default RS256, PS256, ES256, EdDSA.
    #[schemars(extend("x-protection" = "none"))]
    pub algorithms: Option<Vec<String>>,
    /// Audiences that stand for all endpoints, for providers that name an API themselves. An
    /// endpoint's own URL is always accepted.
    #[schemars(extend("x-protection" = "none"))]
    pub audience: Option<Vec<String>>,
    /// Accepts only tokens of the type `at+jwt` (RFC 9068). Default `false`: tokens without a type
    /// are accepted too.
    pub strict_type: Option<bool>,
    /// The longest time from issue to expiry of a token. Default `24h`.
    #[schemars(extend("x-protection" = "none"))]
    pub max_lifetime: Option<Time>,
    /// The claims with the groups of a subject. `a.b` is the claim `a.b`, or `b` in `a`. Default
    /// `groups`.
    #[schemars(extend("x-protection" = "none"))]
    pub groups: Option<Vec<String>>,
    /// Further claims that rules may use, by name. `a.b` is the claim `a.b`, or `b` in `a`.
    #[schemars(extend("x-protection" = "none"))]
    pub claims: Option<Vec<String>>,
    /// Allows plain `http` to an issuer or its keys on another machine. Any host in between can
    /// then forge tokens. Default `false`.
    #[schemars(extend("x-protection" = "none"))]
    pub allow_http: Option<bool>,
}

/// The token introspection of an issuer (RFC 7662).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawIntrospection {
    /// The introspection endpoint.
    pub url: Option<String>,
    /// The client id of weir at the issuer.
    pub client_id: Option<String>,
    /// The client secret of weir at the issuer. Keep the secret out of the file:
    /// `${WEIR_INTROSPECTION_SECRET}`.
    pub client_secret: Option<ConfigSecret>,
}

/// The mapping of a client certificate to a principal.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawCertificates {
    /// The part of the certificate that names the principal. Default `cn`.
    pub subject: Option<RawSubject>,
    /// The groups of every principal with a certificate.
    pub groups: Option<Vec<String>>,
    /// The scopes of every principal with a certificate.
    pub scopes: Option<Vec<String>>,
}

/// A part of a certificate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSubject {
    /// The common name.
    Cn,
    /// The one URI among the alternative names, such as a SPIFFE id.
    Uri,
    /// The one DNS name among the alternative names.
    Dns,
}

/// An API key of a machine. `weir apikey NAME` makes one.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawApiKey {
    /// The key's id, the middle of `weir_<id>_<secret>`: letters and digits.
    #[schemars(extend("x-protection" = "none"))]
    pub id: Option<String>,
    /// SHA-256 of the whole key, in hex or base64.
    #[schemars(extend("x-protection" = "none"))]
    pub sha256: Option<String>,
    /// The principal of the key. Several keys may share one.
    #[schemars(extend("x-protection" = "none"))]
    pub subject: Option<String>,
    /// The groups of the subject.
    #[schemars(extend("x-protection" = "none"))]
    pub groups: Option<Vec<String>>,
    /// The scopes of the key.
    #[schemars(extend("x-protection" = "none"))]
    pub scopes: Option<Vec<String>>,
    /// The expiry: `2027-01-31T12:00:00Z`, or `2027-01-31`, which is the beginning of that day in
    /// UTC.
    pub expires: Option<String>,
}
