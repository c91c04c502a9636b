//! The JSON views of the admin API: stable names, times as RFC 3339, durations in milliseconds, and
//! no secrets.

pub(super) mod call_views;
pub(super) mod catalog_views;
pub(super) mod client_views;
pub(super) mod config_view;
pub(super) mod limit_views;
pub(super) mod replica_views;
pub(super) mod upstream_views;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Serialize, Serializer};
use url::form_urlencoded;
use weir_core::instant::rfc3339;
use weir_explain::AccessQuestion;

use crate::admin_error::{AdminError, json};
use crate::state::AdminState;

/// The items in a response by default, and below it the most.
const DEFAULT_LIMIT: usize = 200;
pub(super) const MAX_LIMIT: usize = 1000;

/// A time, written as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rfc3339Time(pub SystemTime);

impl Serialize for Rfc3339Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339(self.0))
    }
}

/// Explains if a principal can use a tool, and why.
pub(super) async fn explain(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let question = AccessQuestion::read(query.as_deref().unwrap_or_default())
        .map_err(AdminError::bad_request)?;
    Ok(json(
        StatusCode::OK,
        &state.explainer.answer(&question).await,
    ))
}

/// A query of known keys.
struct AdminQuery(HashMap<String, String>);

impl AdminQuery {
    /// # Errors
    ///
    /// A key is unknown or repeated.
    fn read(query: Option<&str>, known: &[&str]) -> Result<Self, AdminError> {
        let mut all = HashMap::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&&*key) {
                let text = match known {
                    [] => "this path has no query parameters".to_owned(),
                    known => format!("unknown query parameter (known: {})", known.join(", ")),
                };
                return Err(AdminError::bad_request(text));
            }
            if all.insert(key.into_owned(), value.into_owned()).is_some() {
                return Err(AdminError::bad_request("a query parameter is given twice"));
            }
        }
        Ok(Self(all))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the most items of the response.
    fn limit(&self) -> Result<usize, AdminError> {
        let Some(text) = self.text("limit") else {
            return Ok(DEFAULT_LIMIT);
        };
        let limit = text
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| {
            AdminError::bad_request(format!("`limit` must be a number from 1 to {MAX_LIMIT}"))
        })
    }
}

/// Milliseconds, to the microsecond.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Returns a URL without its possible secrets: no user, no query.
fn without_secrets(url: &http::Uri) -> String {
    let host = url
        .authority()
        .map(|authority| authority.as_str())
        .unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!(
        "{}://{host}{}",
        url.scheme_str().unwrap_or("http"),
        url.path()
    )
}
