//! `admin`: the listener for operators, and who they are.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::Secret;
use super::OrOff;

/// The listener for operators.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdmin {
    /// `address:port`, or `off`. Default `127.0.0.1:8081`. Any address that is not of this machine
    /// alone needs `auth`.
    pub(crate) listen: Option<String>,
    /// Who may look and change. Absent or `off`: whoever reaches the listener, which then is on
    /// loopback. A reload takes operators' credentials away only where the file says `off`.
    pub(crate) auth: Option<OrOff<RawAdminAuth>>,
    /// Who may read `/metrics`. Default `open`, as `/healthz` and `/readyz` always are.
    pub(crate) metrics: Option<RawMetrics>,
    /// Further names operators may use in `Host`, beside addresses and `localhost`: `name` or
    /// `name:port`.
    pub(crate) allowed_hosts: Option<Vec<String>>,
}

/// Who may look and change. Every one of these is enough.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdminAuth {
    /// One token for all operators, at least 16 characters. Keep it out of the file:
    /// `${WEIR_ADMIN_TOKEN}`.
    pub(crate) token: Option<Secret>,
    /// A token for each operator, so that the audit says who did it.
    pub(crate) tokens: Option<Vec<RawAdminToken>>,
    /// Access tokens of the `auth.issuers`, made for `<public_url>/admin` or one of an issuer's
    /// `audience`.
    pub(crate) oauth: Option<RawAdminOauth>,
}

/// An operator's token. `weir apikey NAME --operator` prints one, and its entry.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdminToken {
    /// Who it is, in the audit.
    pub(crate) name: Option<String>,
    /// SHA-256 of the whole token, in hex or base64.
    pub(crate) sha256: Option<String>,
    /// When it ends: `2027-01-31`, or `2027-01-31T12:00:00Z`.
    pub(crate) expires: Option<String>,
}

/// Operators with access tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdminOauth {
    /// The scope that makes somebody an operator. Default `weir:admin`.
    pub(crate) scope: Option<String>,
}

/// Who may read `/metrics`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawMetrics {
    /// Whoever reaches the listener.
    Open,
    /// Whoever may look.
    Auth,
}
