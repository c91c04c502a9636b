//! The reasons why an authentication fails.

use std::time::Duration;

use crate::token::token_refusal::TokenRefusal;

/// The reason for an authentication failure.
#[derive(Clone, Copy)]
pub(crate) enum AuthFailure {
    /// The request has no credentials.
    Missing,
    /// The credentials are refused.
    Invalid(TokenRefusal),
    /// The check is not possible now. The text is for the log.
    Unavailable(&'static str),
    /// The token's key may be newer than the keys that are known, and no others may be fetched for
    /// this time.
    NewKey(Duration),
}

impl From<TokenRefusal> for AuthFailure {
    fn from(reason: TokenRefusal) -> Self {
        Self::Invalid(reason)
    }
}
