//! The JSON views of the admin API: stable names, times as RFC 3339, durations in milliseconds, and
//! no secrets.

pub(super) mod calls;
pub(super) mod catalog;
pub(super) mod clients;
pub(super) mod config;
pub(super) mod limits;
pub(super) mod upstreams;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Serialize, Serializer};
use url::form_urlencoded;
use weir_core::instant::rfc3339;

use super::desk::Desk;
use super::refused::{Refused, json};
use crate::explain::Question;

/// The items in a response by default, and below it the most.
const SOME: usize = 200;
const MOST: usize = 1000;

/// A time, written as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(pub(super) SystemTime);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339(self.0))
    }
}

/// Explains if a principal can use a tool, and why.
pub(super) async fn explain(
    State(desk): State<Arc<Desk>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let question = Question::read(query.as_deref().unwrap_or_default()).map_err(Refused::bad)?;
    Ok(json(
        StatusCode::OK,
        &desk.explainer.answer(&question).await,
    ))
}

/// A query of known keys.
struct Query(HashMap<String, String>);

impl Query {
    /// # Errors
    ///
    /// A key is unknown or repeated.
    fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Refused> {
        let mut all = HashMap::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&&*key) {
                let text = match known {
                    [] => "nothing is asked by a query here".to_owned(),
                    known => format!(
                        "this is not known in a query here (known: {})",
                        known.join(", ")
                    ),
                };
                return Err(Refused::bad(text));
            }
            if all.insert(key.into_owned(), value.into_owned()).is_some() {
                return Err(Refused::bad("something is there twice in the query"));
            }
        }
        Ok(Self(all))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the most items of the response.
    fn limit(&self) -> Result<usize, Refused> {
        let Some(text) = self.text("limit") else {
            return Ok(SOME);
        };
        let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
        limit.ok_or_else(|| Refused::bad(format!("`limit` must be a number from 1 to {MOST}")))
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
