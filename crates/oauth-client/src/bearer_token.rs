//! An access token and its lifetime.

use std::time::Duration;

use http::HeaderValue;
use weir_core::port::{Random, full_jitter};

/// The last part of a token's life in which it is not used: the request has to arrive, and clocks
/// differ.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);

/// A token and its lifetime.
pub(crate) struct BearerToken {
    /// The whole `Authorization` header. Sensitive. If absent, requests go without one.
    pub(crate) header: Option<HeaderValue>,
    /// The scopes that the authorization server stated; empty if it stated none.
    pub(crate) stated_scopes: Vec<String>,
    /// The time at which a new token is requested.
    pub(super) renew_at: Duration,
    /// The time at which the token expires for weir.
    pub(super) expires_at: Duration,
}

impl BearerToken {
    /// Makes a token that was requested at `requested_at`.
    pub(crate) fn new(
        header: Option<HeaderValue>,
        requested_at: Duration,
        lifetime: Duration,
        random: &dyn Random,
    ) -> Self {
        let renew =
            requested_at + lifetime.mul_f64(0.75) + full_jitter(lifetime.mul_f64(0.1), random);
        Self {
            header,
            stated_scopes: Vec::new(),
            renew_at: renew,
            expires_at: requested_at + lifetime - EXPIRY_MARGIN.min(lifetime / 10),
        }
    }
}
