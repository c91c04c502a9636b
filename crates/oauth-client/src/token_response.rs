//! The response of an authorization server to a token request (RFC 6749, 5). Its texts are not
//! repeated: they may hold secrets of the request.

use std::time::Duration;

use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use weir_core::port::FetchResponse;
use weir_oauth::{TokenResponse, error_code, read_lifetime};

use crate::token_error::TokenError;

/// The lifetime of a token without an expiry: short enough to notice a revocation, long enough not
/// to request tokens all the time.
pub(super) const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The longest lifetime that is believed.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The longest access token: servers bound their request heads.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The token types that an exchange may issue. Others, such as refresh and identity tokens, are no
/// credentials for an upstream.
const ISSUED_TOKEN_TYPES: [&str; 2] = [
    super::settings::TokenExchange::ACCESS_TOKEN,
    "urn:ietf:params:oauth:token-type:jwt",
];

/// An issued token.
#[derive(Debug)]
pub(crate) struct IssuedToken {
    /// The whole `Authorization` header.
    pub(crate) header: HeaderValue,
    pub(crate) lifetime: Duration,
    /// The scopes that the response states; empty if it states none.
    pub(crate) scopes: Vec<String>,
}

/// The members of a token response beside the token.
#[derive(Deserialize)]
struct IssuedTokenMembers {
    #[serde(default)]
    expires_in: Value,
    #[serde(default)]
    scope: Value,
    /// Of an exchange (RFC 8693, 2.2.1).
    issued_token_type: Option<String>,
}

#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
}

/// Reads a response. `exchange` is true for a token exchange. `shown` are the secrets of the
/// request: the client's secret, and the caller's token.
///
/// # Errors
/// The response is a refusal, or has no usable token.
pub(crate) fn read_token_response(
    fetched: &FetchResponse,
    exchange: bool,
    shown: &[&str],
) -> Result<IssuedToken, TokenError> {
    let is_refusal =
        serde_json::from_slice(&fetched.body).is_ok_and(|body| error_code(&body).is_some());
    if fetched.status != 200 || is_refusal {
        return Err(token_error(fetched, exchange));
    }
    let unusable =
        || TokenError::new("The authorization server's answer has no token that could be used");
    let success: TokenResponse<IssuedTokenMembers> =
        serde_json::from_slice(&fetched.body).map_err(|_| unusable())?;
    if !success.is_bearer()
        || !success.is_sendable()
        || success.access_token.len() > MAX_TOKEN_BYTES
    {
        return Err(unusable());
    }
    let (token, members) = (success.access_token, success.members);
    // A secret that comes back as a token would be sent to the upstream.
    if shown.contains(&&*token) {
        return Err(TokenError::new(
            "The authorization server gave back a secret that it was shown: it was not sent on",
        ));
    }
    if members
        .issued_token_type
        .is_some_and(|kind| !ISSUED_TOKEN_TYPES.contains(&&*kind))
    {
        return Err(unusable());
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| unusable())?;
    header.set_sensitive(true);
    Ok(IssuedToken {
        header,
        lifetime: read_lifetime(&members.expires_in)
            .map_or(DEFAULT_LIFETIME, |lifetime| lifetime.min(MAX_LIFETIME)),
        scopes: scopes(&members.scope),
    })
}

/// Reads `scope`. A value of another type states nothing.
fn scopes(scope: &Value) -> Vec<String> {
    let scopes = scope.as_str().unwrap_or_default().split_ascii_whitespace();
    scopes.map(str::to_owned).collect()
}

fn token_error(fetched: &FetchResponse, exchange: bool) -> TokenError {
    let error = serde_json::from_slice::<TokenErrorResponse>(&fetched.body)
        .map(|refusal| refusal.error)
        .unwrap_or_default();
    let is_scope_refusal = matches!(&*error, "invalid_scope" | "access_denied");
    let mut trouble = match (error.as_str(), fetched.status) {
        ("unauthorized_client", _) if exchange => TokenError::new(
            "The authorization server does not permit weir's client the grant token-exchange: its operator has to permit it there",
        ),
        ("unauthorized_client", _) => TokenError::new(
            "The authorization server does not permit weir's client the grant client_credentials, which weir needs for its own requests, such as lists: its operator has to permit it there",
        ),
        ("invalid_client", _) | (_, 401) => TokenError::new(
            "The authorization server refuses weir's client credentials for this upstream: its operator has to renew them",
        ),
        ("invalid_scope" | "invalid_target", _) => TokenError::new(
            "The authorization server gives no token for this upstream with the scopes asked for",
        ),
        ("invalid_grant" | "invalid_request" | "access_denied", _) if exchange => TokenError::new(
            "The authorization server does not exchange the caller's token for one of this upstream",
        ),
        ("unsupported_grant_type", _) if exchange => {
            TokenError::new("The authorization server does not have the grant token-exchange")
        }
        ("unsupported_grant_type", _) => TokenError::new(
            "The authorization server does not have the grant client_credentials, which weir needs for its own requests, such as lists",
        ),
        (_, status @ (429 | 500..)) => TokenError::new(format!(
            "The authorization server gives no tokens now (HTTP {status})"
        )),
        (_, status) => TokenError::new(format!(
            "The authorization server refuses to give a token (HTTP {status})"
        )),
    };
    trouble.is_scope_refusal = is_scope_refusal;
    trouble
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: &str) -> Result<IssuedToken, String> {
        let fetched = FetchResponse {
            status,
            max_age: None,
            body: body.to_owned().into(),
        };
        read_token_response(&fetched, true, &["shown-token", "shown-secret"])
            .map_err(|trouble| trouble.text.into_owned())
    }

    #[test]
    fn only_bearer_tokens_that_fit_a_header_are_accepted() {
        let granted = answer(
            200,
            r#"{"access_token":"abc.def","token_type":"bearer","expires_in":60}"#,
        )
        .unwrap();
        assert_eq!(
            (granted.header.to_str().unwrap(), granted.lifetime),
            ("Bearer abc.def", Duration::from_secs(60))
        );
        assert!(granted.header.is_sensitive());
        let long = "x".repeat(MAX_TOKEN_BYTES + 1);
        for (token, kind) in [
            ("", "Bearer"),
            ("a b", "Bearer"),
            ("a\r\nX: y", "Bearer"),
            (&*long, "Bearer"),
            ("a", "DPoP"),
            ("a", "N_A"),
        ] {
            let body = json!({ "access_token": token, "token_type": kind }).to_string();
            assert!(
                answer(200, &body)
                    .unwrap_err()
                    .contains("no token that could be used"),
                "{kind}"
            );
        }
        for body in [
            "",
            "{}",
            "[]",
            "<html>",
            r#"{"access_token":7,"token_type":"Bearer"}"#,
        ] {
            assert!(answer(200, body).is_err(), "{body}");
        }
    }

    #[test]
    fn echoed_secrets_and_other_token_types_are_refused() {
        for shown in ["shown-token", "shown-secret"] {
            let body = json!({ "access_token": shown, "token_type": "Bearer" }).to_string();
            let why = answer(200, &body).unwrap_err();
            assert!(why.contains("gave back") && !why.contains(shown), "{why}");
        }
        for (kind, good) in [
            ("urn:ietf:params:oauth:token-type:access_token", true),
            ("urn:ietf:params:oauth:token-type:jwt", true),
            ("urn:ietf:params:oauth:token-type:refresh_token", false),
            ("urn:ietf:params:oauth:token-type:id_token", false),
            ("", false),
        ] {
            let body =
                json!({ "access_token": "a", "token_type": "Bearer", "issued_token_type": kind })
                    .to_string();
            assert_eq!(answer(200, &body).is_ok(), good, "{kind}");
        }
    }

    #[test]
    fn lifetime_is_read_as_number_or_string() {
        for (told, expected) in [
            (json!(60), 60),
            (json!("60"), 60),
            (json!(59.5), 59),
            (json!(null), 300),
            (json!(0), 300),
            (json!(-1), 300),
            (json!("soon"), 300),
            (json!(1e300), 300),
            (json!(99_999_999), 86_400),
        ] {
            let body = json!({ "access_token": "a", "token_type": "Bearer", "expires_in": told });
            let issued = answer(200, &body.to_string()).unwrap();
            assert_eq!(issued.lifetime.as_secs(), expected, "{told}");
        }
    }

    #[test]
    fn stated_scopes_are_read_from_a_string_only() {
        for (told, expected) in [
            (json!("read  write"), vec!["read", "write"]),
            (json!(""), vec![]),
            (json!(null), vec![]),
            (json!(["read"]), vec![]),
        ] {
            let body = json!({ "access_token": "a", "token_type": "Bearer", "scope": told });
            assert_eq!(
                answer(200, &body.to_string()).unwrap().scopes,
                expected,
                "{told}"
            );
        }
    }

    #[test]
    fn only_two_error_codes_are_refusals_of_scopes() {
        for (status, error, expected) in [
            (400, "invalid_scope", true),
            (403, "access_denied", true),
            (400, "invalid_grant", false),
            (401, "invalid_client", false),
            (429, "slow_down", false),
            (503, "temporarily_unavailable", false),
            (400, "", false),
        ] {
            let fetched = FetchResponse {
                status,
                max_age: None,
                body: json!({ "error": error }).to_string().into(),
            };
            let trouble = read_token_response(&fetched, false, &[]).unwrap_err();
            assert_eq!(trouble.is_scope_refusal, expected, "{error}");
        }
    }

    #[test]
    fn refused_request_of_weirs_own_names_its_grant() {
        for error in ["unauthorized_client", "unsupported_grant_type"] {
            let fetched = FetchResponse {
                status: 400,
                max_age: None,
                body: json!({ "error": error }).to_string().into(),
            };
            let trouble = read_token_response(&fetched, false, &[]).unwrap_err();
            let expected = "the grant client_credentials, which weir needs for its own requests";
            assert!(trouble.text.contains(expected), "{error}: {}", trouble.text);
        }
    }

    // Proves C19, R251.
    #[test]
    fn error_text_has_no_server_text() {
        for (status, error, part) in [
            (400, "invalid_client", "client credentials"),
            (401, "", "client credentials"),
            (400, "invalid_scope", "scopes asked for"),
            (400, "invalid_target", "scopes asked for"),
            (400, "invalid_grant", "caller's token"),
            (
                400,
                "unsupported_grant_type",
                "have the grant token-exchange",
            ),
            (
                400,
                "unauthorized_client",
                "permit weir's client the grant token-exchange",
            ),
            (
                401,
                "unauthorized_client",
                "permit weir's client the grant token-exchange",
            ),
            (503, "", "no tokens now (HTTP 503)"),
            (429, "slow_down", "no tokens now"),
            (403, "CANARY", "refuses to give a token (HTTP 403)"),
            (302, "", "HTTP 302"),
            (200, "invalid_client", "client credentials"),
            (200, "CANARY", "refuses to give a token (HTTP 200)"),
        ] {
            let body = json!({ "error": error, "error_description": "\u{1b}[31mCANARY", "error_uri": "javascript:x" });
            let text = answer(status, &body.to_string()).unwrap_err();
            assert!(text.contains(part), "{text}");
            assert!(
                !text.contains("CANARY") && !text.contains('\u{1b}'),
                "{text}"
            );
        }
    }
}
