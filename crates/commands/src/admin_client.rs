//! HTTP requests to the admin API, with the operator's token.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use weir_mcp_client::{bearer, explain_unreachable, pool};

use crate::exit_code::{EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE};

/// The timeout of a request. Changes are quick, but a reload starts new upstreams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);
/// The largest response in bytes: a thousand tools with their schemas.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// A client of a running weir's admin API.
pub(super) struct AdminClient {
    url: String,
    token: Option<HeaderValue>,
}

/// The reason for a missing answer, and the command's exit code.
pub(super) struct AdminRequestError {
    pub code: u8,
    pub why: String,
}

/// Sends a request and reads the response, with limits of its bytes and its time.
///
/// # Errors
/// A message for people.
pub(super) async fn exchange(
    request: Request<Full<Bytes>>,
    max_bytes: usize,
    timeout: Duration,
) -> Result<(StatusCode, Bytes), String> {
    let uri = request.uri().clone();
    let exchange = async {
        let pool = pool(uri.scheme_str() == Some("https"))?;
        let response = pool.request(request).await;
        let response = response.map_err(|error| explain_unreachable(&uri, &error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), max_bytes)
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    };
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}

impl AdminClient {
    /// Reads the token from the file or the environment.
    ///
    /// # Errors
    /// A message for people: the file cannot be read, or has no token.
    pub(crate) fn new(url: &str, file: Option<&Path>) -> Result<Self, String> {
        let text = match file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.map_err(|error| format!("{} cannot be read: {error}", file.display()))?)
            }
            None => std::env::var("WEIR_ADMIN_TOKEN")
                .ok()
                .filter(|text| !text.trim().is_empty()),
        };
        let header =
            |text: String| bearer(&text).ok_or("the token has characters no header can have");
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            token: text.map(header).transpose()?,
        })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, AdminRequestError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, AdminRequestError> {
        self.send(Method::POST, path, Bytes::from(body.to_string()))
            .await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Value, AdminRequestError> {
        let url = format!("{}{path}", self.url);
        let wrong = |why: String| AdminRequestError {
            code: EXIT_USAGE,
            why: format!("{url}: {why}"),
        };
        let lost = |why: String| {
            let why = format!("no admin listener of weir answers at {}: {why}", self.url);
            AdminRequestError {
                code: EXIT_UNREACHABLE,
                why,
            }
        };
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| wrong(error.to_string()))?;
        let exchanged = exchange(request, MAX_RESPONSE_BYTES, REQUEST_TIMEOUT).await;
        let (status, body) = exchanged.map_err(lost)?;
        let answer = serde_json::from_slice::<Value>(&body);
        match (status, answer) {
            (StatusCode::OK, Ok(answer)) => Ok(answer),
            (status, Ok(answer)) if answer["error"].is_string() => {
                let why = weir_text::plain(answer["error"].as_str().unwrap_or_default());
                let hint = if status == StatusCode::UNAUTHORIZED {
                    ": set WEIR_ADMIN_TOKEN, or use --token-file"
                } else {
                    ""
                };
                Err(AdminRequestError {
                    code: EXIT_NO,
                    why: format!("{why}{hint}"),
                })
            }
            (status, _) => Err(lost(format!(
                "the server there answered {status} and is not an admin listener of weir"
            ))),
        }
    }
}
