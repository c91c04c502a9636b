//! Requests for small JSON documents: metadata, registrations, tokens. Bounded in bytes and time;
//! no redirect is followed.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use url::{Host, Url};
use weir_oauth::FormRequest;

use crate::client::transport::server_pool;
use crate::client::unreachable::explain as explain_unreachable;
use crate::login::login_error::{LoginError, plain};

/// The most bytes of a document; metadata and token responses have a few kilobytes.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// The timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A response.
#[derive(Debug)]
pub(super) struct LoginJsonResponse {
    pub(super) status: StatusCode,
    /// The body; `Null` if it is not JSON.
    pub(super) body: Value,
}

/// Refuses an address from a server's metadata if it would send secrets in clear text, or reach a
/// local port for a remote server. https is accepted; http only on loopback, and only if the MCP
/// server is there too.
pub(super) fn check_url(what: &'static str, text: &str, server: &Url) -> Result<Url, LoginError> {
    let wrong = || LoginError::Unsafe {
        what,
        url: plain(text),
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    let fits = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url) && is_loopback(server),
        _ => false,
    };
    (fits && url.username().is_empty() && url.password().is_none())
        .then_some(url)
        .ok_or_else(wrong)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Fetches a JSON document.
pub(super) async fn get(url: &Url) -> Result<LoginJsonResponse, LoginError> {
    send(url, Method::GET, None, None).await
}

/// Posts a form with the client's authentication.
pub(super) async fn post_form(
    url: &Url,
    request: FormRequest,
) -> Result<LoginJsonResponse, LoginError> {
    let FormRequest {
        form,
        authorization,
    } = request;
    let body = ("application/x-www-form-urlencoded", form);
    send(url, Method::POST, Some(body), authorization).await
}

/// Posts a JSON document.
pub(super) async fn post_json(url: &Url, body: &Value) -> Result<LoginJsonResponse, LoginError> {
    let body = ("application/json", body.to_string());
    send(url, Method::POST, Some(body), None).await
}

async fn send(
    url: &Url,
    method: Method,
    body: Option<(&str, String)>,
    authorization: Option<String>,
) -> Result<LoginJsonResponse, LoginError> {
    let web = |why: String| LoginError::Web {
        url: url.to_string(),
        why,
    };
    let mut request = Request::builder()
        .method(method)
        .uri(url.as_str())
        .header(header::ACCEPT, "application/json");
    if let Some((kind, _)) = &body {
        request = request.header(header::CONTENT_TYPE, *kind);
    }
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let body = body.map(|(_, text)| text).unwrap_or_default();
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| web(error.to_string()))?;
    let uri = request.uri().clone();
    let exchange = async {
        let response = server_pool(url.scheme() == "https")
            .map_err(web)?
            .request(request)
            .await;
        let response = response.map_err(|error| web(explain_unreachable(&uri, &error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_DOCUMENT_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| web(error.to_string()))?.to_bytes();
        Ok(LoginJsonResponse {
            status,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    };
    tokio::time::timeout(REQUEST_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err(web("no answer".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves C18.
    #[test]
    fn addresses_that_servers_name_are_https_or_local_to_a_local_server() {
        let url = |text| Url::parse(text).expect("a URL");
        let (local, far) = (
            url("http://127.0.0.1:8080/mcp"),
            url("https://tools.example/mcp"),
        );
        assert!(check_url("x", "https://id.example/token", &far).is_ok());
        assert!(check_url("x", "http://127.0.0.1:9/token", &local).is_ok());
        assert!(check_url("x", "http://[::1]:9/token", &local).is_ok());
        for bad in [
            "http://127.0.0.1:9/token",
            "http://id.example/token",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://user:secret@id.example/",
            "no url",
            "",
        ] {
            assert!(
                matches!(check_url("x", bad, &far), Err(LoginError::Unsafe { .. })),
                "{bad}"
            );
        }
        assert!(check_url("x", "http://10.0.0.1/token", &local).is_err());
    }
}
