//! The principals and clients of a session, as one process describes them to its successor.

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};
use weir_core::SessionKey;
use weir_core::principal::Principal;

/// The principal that a session belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportedOwner {
    /// All principals.
    Shared,
    /// The anonymous principal.
    Anonymous,
    /// Issuer and subject.
    Subject(String, String),
}

impl ExportedOwner {
    /// Describes a principal; absent for a session that all share.
    pub fn of(principal: Option<&Principal>) -> Self {
        match principal.map(Principal::owner_name) {
            None => Self::Shared,
            Some(None) => Self::Anonymous,
            Some(Some((issuer, subject))) => Self::Subject(issuer.to_owned(), subject.to_owned()),
        }
    }

    /// Returns the principal; absent for a session that all share.
    pub fn principal(&self) -> Option<Principal> {
        match self {
            Self::Shared => None,
            Self::Anonymous => Some(Principal::owner(None)),
            Self::Subject(issuer, subject) => Some(Principal::owner(Some((issuer, subject)))),
        }
    }
}

/// A client's session, in base64url.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportedClient(String);

impl ExportedClient {
    /// Describes a session.
    pub fn of(session: SessionKey) -> Self {
        Self(BASE64URL_NOPAD.encode(&session.0))
    }

    /// Returns the session; absent if the description is damaged.
    pub fn session(&self) -> Option<SessionKey> {
        BASE64URL_NOPAD
            .decode(self.0.as_bytes())
            .ok()?
            .try_into()
            .ok()
            .map(SessionKey)
    }
}
