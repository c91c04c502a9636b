//! `admin`: the listener for operators, and the credentials of operators.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;
use crate::raw::OrOff;

/// The listener for operators.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdmin {
    /// The `address:port` of the listener, or `off`. Default `127.0.0.1:8081`. An address that
    /// other machines can reach needs `auth`.
    #[schemars(extend("x-protection" = "none"))]
    pub listen: Option<String>,
    /// The credentials of operators. Absent or `off`: every caller that reaches the listener is an
    /// operator, and the listener must be on loopback. A reload removes operators' credentials only
    /// if the file has the word `off`.
    pub auth: Option<OrOff<RawAdminAuth>>,
    /// The access to `/metrics`. Default `open`, as `/healthz` and `/readyz` always are.
    pub metrics: Option<RawMetricsAccess>,
    /// Further names that operators may use in `Host`, besides addresses and `localhost`:
    /// `name` or `name:port`.
    #[schemars(extend("x-protection" = "none"))]
    pub allowed_hosts: Option<Vec<String>>,
}

/// The credentials of operators. Any one of these is enough.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdminAuth {
    /// One token for all operators, at least 16 characters. Keep it out of the file:
    /// `${WEIR_ADMIN_TOKEN}`.
    #[schemars(extend("x-protection" = "none"))]
    pub token: Option<ConfigSecret>,
    /// A token for each operator, so that the audit log names the operator.
    #[schemars(extend("x-protection" = "none"))]
    pub tokens: Option<Vec<RawAdminToken>>,
    /// Access tokens of the `auth.issuers` with `<public_url>/admin` or one of an issuer's
    /// `audience` as audience.
    #[schemars(extend("x-protection" = "none"))]
    pub oauth: Option<RawAdminOauth>,
}

/// An operator's token. `weir apikey NAME --operator` prints one with its entry for this list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdminToken {
    /// The name of the operator in the audit log.
    #[schemars(extend("x-protection" = "none"))]
    pub name: Option<String>,
    /// SHA-256 of the whole token, in hex or base64.
    #[schemars(extend("x-protection" = "none"))]
    pub sha256: Option<String>,
    /// The expiry: `2027-01-31T12:00:00Z`, or `2027-01-31`, which is the beginning of that day in
    /// UTC.
    pub expires: Option<String>,
}

/// Operators with access tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdminOauth {
    /// The scope that an operator's token needs. Default `weir:admin`.
    #[schemars(extend("x-protection" = "none"))]
    pub scope: Option<String>,
}

/// The access to `/metrics`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawMetricsAccess {
    /// Every caller that reaches the listener.
    Open,
    /// Operators only.
    Auth,
}
