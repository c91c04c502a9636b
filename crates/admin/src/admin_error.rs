//! Refusals of the admin API: a status, and a JSON object with the reason.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A refusal.
#[derive(Debug)]
pub(super) struct AdminError {
    status: StatusCode,
    error: String,
    /// The `WWW-Authenticate` challenge: the scheme with a 401, the missing scope with a 403.
    challenge: Option<HeaderValue>,
    /// The seconds until the request may succeed.
    retry_after: Option<u16>,
}

impl AdminError {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            challenge: None,
            retry_after: None,
        }
    }

    /// The refusal of an invalid request.
    pub(super) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// The refusal for an unknown name.
    pub(super) fn not_found(what: &str, name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            format!("there is no {what} `{name}`"),
        )
    }

    pub(super) fn challenging(self, challenge: HeaderValue) -> Self {
        Self {
            challenge: Some(challenge),
            ..self
        }
    }

    /// States the seconds until the request may succeed.
    pub(super) fn retry_after(self, seconds: u16) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct ErrorBody {
            error: String,
        }
        let mut response = json(self.status, &ErrorBody { error: self.error });
        if let Some(challenge) = self.challenge {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Returns a JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "internal error: admin response not serialized");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
