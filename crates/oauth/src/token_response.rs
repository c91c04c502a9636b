//! The response of a token endpoint (RFC 6749, 5.1).

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// A response with a token. `M` has the members that its reader needs beside the
/// token.
#[derive(Deserialize)]
pub struct TokenResponse<M> {
    /// The token. Secret.
    pub access_token: String,
    /// The type of the token.
    pub token_type: String,
    /// Further members.
    #[serde(flatten)]
    pub members: M,
}

impl<M> TokenResponse<M> {
    /// True for a token that a request carries by itself. Other types need more than a header
    /// (proof of possession), or are no access tokens at all (`N_A`).
    pub fn is_bearer(&self) -> bool {
        self.token_type.eq_ignore_ascii_case("Bearer")
    }

    /// True for a token of characters that a header can carry, at least one (RFC 6750, 2.1).
    pub fn is_sendable(&self) -> bool {
        !self.access_token.is_empty() && self.access_token.bytes().all(|b| b.is_ascii_graphic())
    }
}

/// Returns the error code of a response that has one and no token (RFC 6749, 5.2). Some servers
/// send it with status 200.
#[must_use]
pub fn error_code(response: &Value) -> Option<&str> {
    let code = response["error"].as_str();
    code.filter(|code| !code.is_empty() && response["access_token"].is_null())
}

/// Reads `expires_in`, which some servers write as a string. Absent if it is no number of seconds
/// above 0: the token's lifetime is then unknown (RFC 6749, 5.1).
#[must_use]
pub fn read_lifetime(expires_in: &Value) -> Option<Duration> {
    let seconds = expires_in
        .as_f64()
        .or_else(|| expires_in.as_str()?.trim().parse().ok())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|lifetime| !lifetime.is_zero())
}

impl<M> fmt::Debug for TokenResponse<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenResponse(<secret>)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    #[test]
    fn token_must_fit_a_header() {
        for (token, is_sendable) in [
            ("abc.def", true),
            ("", false),
            ("a b", false),
            ("a\n", false),
        ] {
            let body = json!({ "access_token": token, "token_type": "Bearer" });
            let response: TokenResponse<Lifetime> = serde_json::from_value(body).unwrap();
            assert_eq!(response.is_sendable(), is_sendable, "{token:?}");
        }
    }

    #[test]
    fn response_with_an_error_and_no_token_is_a_refusal() {
        for (body, expected) in [
            (json!({ "error": "bad_code" }), Some("bad_code")),
            (
                json!({ "error": "bad_code", "access_token": null }),
                Some("bad_code"),
            ),
            (json!({ "error": "", "access_token": "a" }), None),
            (json!({ "error": "bad_code", "access_token": "a" }), None),
            (json!({ "error": 7 }), None),
            (json!([]), None),
        ] {
            assert_eq!(error_code(&body), expected, "{body}");
        }
    }

    #[derive(Deserialize)]
    struct Lifetime {
        expires_in: Option<u64>,
    }

    #[test]
    fn bearer_tokens_are_told_from_others() {
        for (kind, is_bearer) in [
            ("Bearer", true),
            ("bearer", true),
            ("DPoP", false),
            ("N_A", false),
        ] {
            let body = json!({ "access_token": "CANARY", "token_type": kind, "expires_in": 60, "scope": 7 });
            let response: TokenResponse<Lifetime> = serde_json::from_value(body).unwrap();
            assert_eq!(response.is_bearer(), is_bearer, "{kind}");
            assert_eq!(response.members.expires_in, Some(60));
            assert!(!format!("{response:?}").contains("CANARY"));
        }
        for body in [
            json!({}),
            json!([]),
            json!({ "access_token": 7, "token_type": "Bearer" }),
        ] {
            assert!(serde_json::from_value::<TokenResponse<Lifetime>>(body).is_err());
        }
    }
}
