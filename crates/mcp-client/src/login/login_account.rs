//! A login at one server: its tokens, and where they belong.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// A token that expires sooner than this is refreshed before use.
const REFRESH_MARGIN: Duration = Duration::from_secs(30);

/// The secret of a client that registered itself (RFC 7591, 3.2.1).
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct LoginClientSecret {
    pub(super) secret: String,
    pub(super) method: LoginClientAuthMethod,
}

/// The authentication of a client that has a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum LoginClientAuthMethod {
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

impl fmt::Debug for LoginClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginClientSecret({:?})", self.method)
    }
}

/// A login at one server.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct LoginAccount {
    /// The resource that the tokens are for.
    pub(super) resource: String,
    /// The tokens' issuer. They are sent to no other authorization server.
    pub(super) issuer: String,
    pub(super) client_id: String,
    /// Absent for a public client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<LoginClientSecret>,
    pub(super) token_endpoint: String,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    /// The expiry, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    pub(super) scope: Option<String>,
}

impl LoginAccount {
    /// Returns the token, for the one place that sends it.
    pub fn access_token(&self) -> &str {
        &self.access_token
    }

    /// Returns the resource that the token is for.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the token's issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the token's scopes, if the issuer gave them.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref().filter(|scope| !scope.is_empty())
    }

    /// Returns the token's remaining lifetime at `now`; `None` if its issuer gave no expiry.
    pub fn lifetime(&self, now: SystemTime) -> Option<Duration> {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(self.expires_at?);
        Some(end.duration_since(now).unwrap_or_default())
    }

    pub(super) fn expires_soon(&self, now: SystemTime) -> bool {
        self.lifetime(now)
            .is_some_and(|rest| rest <= REFRESH_MARGIN)
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.lifetime(now).is_some_and(|rest| rest.is_zero())
    }
}

impl fmt::Debug for LoginAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginAccount({} at {})", self.resource, self.issuer)
    }
}
