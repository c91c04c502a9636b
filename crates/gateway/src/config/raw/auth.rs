//! `auth`: who may connect.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::Secret;
use super::{Ordered, Time};

/// Who may connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAuth {
    /// `none`: nobody is asked, as without `auth`. `oauth`: a token of one of the `issuers`, or one
    /// of the other credentials here. `required`: one of the credentials here, of whatever kind.
    pub(crate) mode: Option<String>,
    /// Must be `true` where `mode: none` is to serve more than this machine, and where a reload is
    /// to take credentials away: everybody who reaches the port may call every tool.
    pub(crate) allow_anyone: Option<bool>,
    /// Whose tokens are good here.
    pub(crate) issuers: Option<Vec<RawIssuer>>,
    /// How far the clocks of issuers may differ from weir's. Default `30s`, at most `5m`.
    pub(crate) leeway: Option<Time>,
    /// Scopes that include others: `{ admin: [read, write] }`.
    pub(crate) scope_implies: Option<Ordered<Vec<String>>>,
    /// Keys of machines without OAuth, as `weir apikey NAME` prints them.
    pub(crate) api_keys: Option<Vec<RawApiKey>>,
    /// Client certificates as credentials; `tls.client_ca` says whose.
    pub(crate) mtls: Option<RawCertificates>,
}

/// Somebody whose tokens are good here.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawIssuer {
    /// The `iss` of its tokens, character by character. Its metadata is found from here.
    pub(crate) issuer: Option<String>,
    /// Where its keys are. Default: where its metadata says (RFC 8414, or OpenID discovery).
    pub(crate) jwks_uri: Option<String>,
    /// Ask it about each token (RFC 7662) instead of checking signatures.
    pub(crate) introspection: Option<RawIntrospection>,
    /// What it signs with: any of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA.
    /// Default RS256, PS256, ES256, EdDSA.
    pub(crate) algorithms: Option<Vec<String>>,
    /// Audiences that stand for all endpoints, for providers that know an API by a name of its own.
    /// An endpoint's own URL is always one.
    pub(crate) audience: Option<Vec<String>>,
    /// Take only tokens of the type `at+jwt` (RFC 9068). Default `false`: tokens without a type
    /// too.
    pub(crate) strict_type: Option<bool>,
    /// The longest time from issue to expiry. Default `24h`.
    pub(crate) max_lifetime: Option<Time>,
    /// The claims with the groups of a subject; `a.b` is `b` in `a`. Default `groups`.
    pub(crate) groups: Option<Vec<String>>,
    /// Further claims that rules may look at, by name.
    pub(crate) claims: Option<Vec<String>>,
    /// Must be `true` for an issuer or keys by `http` from another machine: whoever is between can
    /// be anybody.
    pub(crate) allow_http: Option<bool>,
}

/// Where an issuer tells of tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawIntrospection {
    /// Its introspection endpoint.
    pub(crate) url: Option<String>,
    /// As whom weir asks.
    pub(crate) client_id: Option<String>,
    /// weir's password there. Keep it out of the file: `${WEIR_INTROSPECTION_SECRET}`.
    pub(crate) client_secret: Option<Secret>,
}

/// How a client certificate names a principal.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawCertificates {
    /// The part that names it. Default `cn`.
    pub(crate) subject: Option<RawSubject>,
    /// The groups of everybody with a certificate.
    pub(crate) groups: Option<Vec<String>>,
    /// What a certificate is good for.
    pub(crate) scopes: Option<Vec<String>>,
}

/// A part of a certificate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSubject {
    /// The common name.
    Cn,
    /// The one URI among the alternative names, such as a SPIFFE id.
    Uri,
    /// The one DNS name among the alternative names.
    Dns,
}

/// A key of a machine. `weir apikey NAME` makes one.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawApiKey {
    /// The middle of `weir_<id>_<secret>`: letters and digits.
    pub(crate) id: Option<String>,
    /// SHA-256 of the whole key, in hex or base64.
    pub(crate) sha256: Option<String>,
    /// Whom it stands for. Several keys may stand for the same.
    pub(crate) subject: Option<String>,
    /// The groups of the subject.
    pub(crate) groups: Option<Vec<String>>,
    /// What the key is good for.
    pub(crate) scopes: Option<Vec<String>>,
    /// When it ends: `2027-01-31`, or `2027-01-31T12:00:00Z`.
    pub(crate) expires: Option<String>,
}
