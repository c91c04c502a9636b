//! The redirect endpoint of a login: a listener on loopback (RFC 8252, 7.3) that receives the code
//! once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::form_urlencoded;

use crate::login::login_error::{LoginError, plain};

const PATH: &str = "/callback";
/// The most open connections. Browsers open some in advance; a person has few tabs.
const CONNECTIONS: usize = 16;
/// The time that a connection has to send its head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The listener.
#[derive(Debug)]
pub(super) struct RedirectListener {
    listener: TcpListener,
    port: u16,
}

/// The authorization response that the browser brought.
#[derive(Debug)]
pub(super) struct AuthorizationResponse {
    /// The authorization server that claims to have sent it (RFC 9207).
    pub(super) issuer: Option<String>,
    /// The code, or the error. Not to be used before the issuer is checked.
    pub(super) code: Result<String, String>,
}

impl RedirectListener {
    /// Binds a loopback address, at this port or any.
    pub(super) async fn bind(port: Option<u16>) -> Result<Self, LoginError> {
        let local = |error| LoginError::Local {
            what: "cannot listen for the browser".to_owned(),
            error,
        };
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0)))
            .await
            .map_err(local)?;
        let port = listener.local_addr().map_err(local)?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the request with this `state`. Others are refused, and the wait goes on.
    pub(super) async fn wait_for_response(
        self,
        state: &str,
    ) -> Result<AuthorizationResponse, LoginError> {
        let state: Arc<str> = state.into();
        let mut visits = JoinSet::new();
        loop {
            tokio::select! {
                Some(visit) = visits.join_next() => {
                    if let Ok(Some(landed)) = visit {
                        return Ok(landed);
                    }
                }
                accepted = self.listener.accept(), if visits.len() < CONNECTIONS => {
                    let (stream, _) = accepted
                        .map_err(|error| LoginError::Local { what: "the browser cannot come back".to_owned(), error })?;
                    visits.spawn(serve_connection(stream, state.clone()));
                }
            }
        }
    }
}

/// Serves one connection to its end, so that the page is sent before the login goes on.
async fn serve_connection(stream: TcpStream, state: Arc<str>) -> Option<AuthorizationResponse> {
    let found = Mutex::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        let (response, landed) = answer(&request, &state);
        if let Some(landed) = landed {
            *found.lock() = Some(landed);
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A browser that leaves before it has the page has still brought the code.
    let _ = connection.await;
    found.into_inner()
}

fn answer<B>(
    request: &Request<B>,
    state: &str,
) -> (Response<Full<Bytes>>, Option<AuthorizationResponse>) {
    if request.method() != Method::GET || request.uri().path() != PATH {
        return (page(StatusCode::NOT_FOUND, "Not found."), None);
    }
    let pairs: Vec<_> =
        form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).collect();
    let first = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.to_string())
    };
    if first("state").as_deref() != Some(state) {
        return (
            page(
                StatusCode::BAD_REQUEST,
                "This response does not belong to the pending login.",
            ),
            None,
        );
    }
    let code = first("code").ok_or_else(|| {
        let error = plain(&first("error").unwrap_or_else(|| "no code".to_owned()));
        first("error_description").map_or(error.clone(), |why| format!("{error}: {}", plain(&why)))
    });
    let text = match &code {
        Ok(_) => "weir received the login. You can close this page.",
        Err(_) => "The login failed. The terminal shows the reason.",
    };
    (
        page(StatusCode::OK, text),
        Some(AuthorizationResponse {
            issuer: first("iss"),
            code,
        }),
    )
}

/// Returns a page that loads no resources and sends no referrer, because its address has the code
/// in it.
fn page(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let body = format!("<!doctype html><meta charset=\"utf-8\"><title>weir</title><p>{text}</p>\n");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, http::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(uri: &str) -> (StatusCode, Option<AuthorizationResponse>) {
        let request = Request::get(uri).body(()).expect("a request");
        let (response, landed) = answer(&request, "right");
        (response.status(), landed)
    }

    // Proves R268.
    #[test]
    fn only_the_visit_with_the_right_state_counts() {
        for other in [
            "/callback?code=a",
            "/callback?code=a&state=wrong",
            "/callback?state=&code=a",
            "/?code=a&state=right",
        ] {
            let (status, landed) = visited(other);
            assert!(status.is_client_error() && landed.is_none(), "{other}");
        }
        let (status, landed) =
            visited("/callback?state=right&code=a%2Fb&iss=https%3A%2F%2Fid.example");
        let landed = landed.expect("it counts");
        assert_eq!(
            (status, landed.code.as_deref()),
            (StatusCode::OK, Ok("a/b"))
        );
        assert_eq!(landed.issuer.as_deref(), Some("https://id.example"));
    }

    #[test]
    fn refusal_is_shown_in_the_terminal_only() {
        let (status, landed) =
            visited("/callback?state=right&error=access_denied&error_description=no%1b%5B2J");
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            landed.expect("it counts").code,
            Err("access_denied: no[2J".to_owned())
        );
    }
}
