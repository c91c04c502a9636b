//! The reason and duration that an operator sends with a change.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use weir_config_file::raw::Time;

use crate::admin_error::AdminError;

/// The most bytes of a body.
const MAX_BODY_BYTES: usize = 16 << 10;
/// The most characters of a reason; the rest is cut.
const REASON: usize = 300;
/// The longest duration. A change that is to last longer belongs into the config.
const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The reason and duration of a change.
#[derive(Debug)]
pub(super) struct ActionRequest {
    pub reason: Option<String>,
    pub(super) ttl: Option<Duration>,
}

/// The body as JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ActionBody {
    reason: Option<String>,
    ttl: Option<Time>,
}

impl ActionRequest {
    /// Reads the body of a change without further members. An empty body counts as an empty object.
    ///
    /// # Errors
    ///
    /// The body is too long or no such object, or it has `ttl` although the change does not last.
    pub(super) async fn read(body: Body, lasting: bool) -> Result<Self, AdminError> {
        let ActionBody { reason, ttl } = read(body).await?;
        Self::new(reason, ttl, lasting)
    }

    pub(crate) fn new(
        reason: Option<String>,
        ttl: Option<Time>,
        lasting: bool,
    ) -> Result<Self, AdminError> {
        let ttl = ttl.map(|Time(ttl)| ttl);
        if ttl.is_some() && !lasting {
            return Err(AdminError::bad_request(
                "`ttl` has no effect on an action without duration",
            ));
        }
        if ttl.is_some_and(|ttl| ttl.is_zero() || ttl > MAX_TTL) {
            return Err(AdminError::bad_request(
                "`ttl` must be above zero and at most 30d",
            ));
        }
        let reason = reason
            .map(|reason| audit_text(&reason))
            .filter(|reason| !reason.is_empty());
        Ok(Self { reason, ttl })
    }
}

/// Reads a JSON object.
///
/// # Errors
///
/// The body is too long, or no such object.
pub(super) async fn read<T: DeserializeOwned + Default>(body: Body) -> Result<T, AdminError> {
    let too_long = || {
        AdminError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 16 KiB",
        )
    };
    let bytes = to_bytes(body, MAX_BODY_BYTES)
        .await
        .map_err(|_| too_long())?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    // An array would be read as an object without its names.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(AdminError::bad_request("the body is not a JSON object"));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| AdminError::bad_request(format!("the body is not valid: {error}")))
}

/// Returns a text for records and logs: cut, and on one line.
pub(crate) fn audit_text(text: &str) -> String {
    text.trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(REASON)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    async fn of(text: &'static str, lasting: bool) -> Option<ActionRequest> {
        ActionRequest::read(Body::from(text), lasting).await.ok()
    }

    #[tokio::test]
    async fn action_body_is_an_object_with_reason_and_ttl() {
        let request = of(r#"{"reason":" why\nnot ","ttl":"5m"}"#, true)
            .await
            .unwrap();
        assert_eq!(
            (request.reason.as_deref(), request.ttl),
            (Some("why not"), Some(Duration::from_secs(300)))
        );
        assert!(of("", true).await.unwrap().ttl.is_none());
        for bad in [
            "[]",
            "5",
            "{\"ttl\":5}",
            "{\"ttl\":\"0s\"}",
            "{\"ttl\":\"31d\"}",
            "{\"reson\":\"x\"}",
            "{",
        ] {
            assert!(of(bad, true).await.is_none(), "{bad}");
        }
        assert!(
            of(r#"{"ttl":"5m"}"#, false).await.is_none(),
            "it does not last"
        );
        let long = format!("{{\"reason\":\"{}\"}}", "x".repeat(1000));
        assert_eq!(
            ActionRequest::read(Body::from(long), false)
                .await
                .unwrap()
                .reason
                .unwrap()
                .len(),
            REASON
        );
        assert!(
            ActionRequest::read(Body::from(" ".repeat(MAX_BODY_BYTES + 1)), false)
                .await
                .is_err()
        );
    }
}
