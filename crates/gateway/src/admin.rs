//! The operators' listener: is weir alive, is it ready, and its metrics. Clients never reach it: it has its own port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_policy::Credentials;

use crate::telemetry::Metrics;

/// The routes, for the test that compares them with `openapi/weir.yaml`.
pub const ROUTES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Operators are few; a scanner that opens more waits.
const CONNECTIONS: usize = 64;
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long the end waits for an answer that is being written.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The listener and what it serves. Dropping it ends it without ceremony; [`Admin::shutdown`] waits.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
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

    fn is(&self) -> bool {
        self.wanted.load(Ordering::Acquire) && self.credentials.is_ready()
    }
}

impl Admin {
    /// Binds and serves.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) async fn start(address: SocketAddr, metrics: Metrics, ready: Ready) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accept = accept(listener, router(metrics, ready), stop.clone(), tasks.clone());
        tasks.spawn(accept);
        Ok(Self { address, stop, tasks })
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

fn router(metrics: Metrics, ready: Ready) -> Router {
    Router::new()
        .route(ROUTES[0], get(async || "alive\n"))
        .route(ROUTES[1], get(readiness).with_state(ready))
        .route(ROUTES[2], get(scrape).with_state(metrics))
}

async fn readiness(State(ready): State<Ready>) -> Response {
    match ready.is() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response(),
    }
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
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
