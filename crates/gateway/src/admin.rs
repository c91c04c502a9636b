//! The operators' listener: is weir alive, is it ready, its metrics, and why somebody can use a tool or not. Clients never
//! reach it: it has its own port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_policy::Credentials;

use crate::explain::{Explainer, Question};
use crate::telemetry::{Format, Metrics};

/// The routes, for the test that compares them with `openapi/weir.yaml`.
pub const ROUTES: [&str; 4] = [ALIVE, READY, "/metrics", EXPLAIN];

/// Whether the process is alive, and whether it wants traffic: where probes and `weir health` ask.
pub(crate) const ALIVE: &str = "/healthz";
pub(crate) const READY: &str = "/readyz";

/// Where `weir explain` asks.
pub(crate) const EXPLAIN: &str = "/admin/explain";

/// Operators are few; a scanner that opens more waits.
const CONNECTIONS: usize = 64;
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long the end waits for an answer that is being written.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The listener and what it serves. Dropping it ends it without ceremony; [`Admin::shutdown`] waits.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    /// Once more, for another process. It is closed with this.
    socket: OwnedFd,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What operators can ask.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) metrics: Metrics,
    pub(crate) ready: Ready,
    pub(crate) explainer: Arc<Explainer>,
}

/// Whether weir wants traffic: the config is applied, clients can be known, and it is not draining.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    wanted: Arc<AtomicBool>,
    credentials: Arc<Credentials>,
}

impl Ready {
    /// Not yet.
    pub(crate) fn new(credentials: Arc<Credentials>) -> Self {
        Self { wanted: Arc::default(), credentials }
    }

    pub(crate) fn set(&self, ready: bool) {
        self.wanted.store(ready, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.wanted.load(Ordering::Acquire) && self.credentials.is_ready()
    }
}

impl Admin {
    /// Serves at a socket that was `inherited`, or else binds and serves.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) async fn start(
        address: SocketAddr,
        inherited: Option<std::net::TcpListener>,
        desk: Desk,
    ) -> std::io::Result<Self> {
        let listener = match inherited {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)?
            }
            None => TcpListener::bind(address).await?,
        };
        let address = listener.local_addr()?;
        let socket = listener.as_fd().try_clone_to_owned()?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accept = accept(listener, router(desk), stop.clone(), tasks.clone());
        tasks.spawn(accept);
        Ok(Self { address, socket, stop, tasks })
    }

    /// The listening socket, for a process that is to serve at it too.
    ///
    /// # Errors
    /// The system has no file left.
    pub(crate) fn socket(&self) -> std::io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the listener and its connections.
    pub(crate) async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        // Connections end once their answer is written; one that will not is dropped with the process.
        let _ = tokio::time::timeout(LAST_ANSWERS, self.tasks.wait()).await;
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn router(desk: Desk) -> Router {
    let Desk { metrics, ready, explainer } = desk;
    Router::new()
        .route(ROUTES[0], get(async || "alive\n"))
        .route(ROUTES[1], get(readiness).with_state(ready))
        .route(ROUTES[2], get(scrape).with_state(metrics))
        .route(ROUTES[3], get(explain).with_state(explainer))
}

async fn readiness(State(ready): State<Ready>) -> Response {
    match ready.is() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response(),
    }
}

async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    ([(header::CONTENT_TYPE, format.media_type())], metrics.page(format)).into_response()
}

async fn explain(State(explainer): State<Arc<Explainer>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    if !is_operators(&headers) {
        return (StatusCode::FORBIDDEN, "this is for operators' tools, by address\n").into_response();
    }
    let question = match Question::read(query.as_deref().unwrap_or_default()) {
        Ok(question) => question,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    match serde_json::to_string(&explainer.answer(&question).await) {
        Ok(json) => {
            ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], json).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "an explanation cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Not a page in an operator's browser: no origin, and no name that somebody's DNS could give this address.
fn is_operators(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let by_address = host.is_some_and(|authority| {
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
    });
    by_address && !headers.contains_key(header::ORIGIN)
}

async fn accept(listener: TcpListener, router: Router, stop: CancellationToken, tasks: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = tokio::select! {
            () = stop.cancelled() => return,
            place = places.clone().acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (service, stop) = (TowerToHyperService::new(router.clone()), stop.clone());
                tasks.spawn(async move {
                    let _place = place;
                    let mut http = hyper::server::conn::http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
                    let connection = http.serve_connection(TokioIo::new(stream), service);
                    let mut connection = std::pin::pin!(connection);
                    // An operator's client that breaks off is no news.
                    let _ = tokio::select! {
                        ended = connection.as_mut() => ended,
                        () = stop.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
                        }
                    };
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the operators' listener cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a17_pages_in_a_browser_get_no_explanations() {
        for (host, origin, fits) in [
            (Some("127.0.0.1:8081"), None, true),
            (Some("[::1]:8081"), None, true),
            (Some("localhost:8081"), None, true),
            (Some("10.0.0.7"), None, true),
            (Some("rebound.example:8081"), None, false),
            (Some("localhost.example"), None, false),
            (Some("127.0.0.1:8081"), Some("http://evil.example"), false),
            (Some("not a host"), None, false),
            (None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(host.map(|host| (header::HOST, HeaderValue::from_static(host))));
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            assert_eq!(is_operators(&headers), fits, "{host:?} {origin:?}");
        }
    }
}
