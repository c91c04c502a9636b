//! The operators' listener: liveness, readiness, metrics, a status page, and the admin API that
//! shows and changes the running process. It has a port of its own, apart from the clients'
//! listener.

mod actions;
mod admin_error;
mod config_history;
mod connections;
mod forwarded_operators;
mod inherited;
mod operator_auth;
mod operator_routes;
mod override_effects;
mod override_expiry;
mod overrides;
mod page;
mod replica_overview;
mod replica_requests;
mod request_guard;
mod route_table;
mod shared_overrides;
mod state;
mod strictness;
mod views;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use weir_config::{LIVENESS_PATH, READINESS_PATH};

pub use config_history::ConfigHistory;
pub use forwarded_operators::ForwardedOperators;
pub use inherited::apply_inherited;
pub use operator_auth::OperatorAuth;
pub use override_expiry::expire_overrides;
pub use overrides::OperatorOverrides;
pub use replica_overview::{ReplicaOverview, SharedStoreState};
pub use route_table::ROUTES;
pub use shared_overrides::{OverrideSinks, apply_shared, follow_shared_changes};
pub use state::{AdminParts, AdminState, ControlHandles, Readiness, ReloadRequest};
pub use strictness::Strictness;

use connections::{AdminConnection, AdminConnections};
use operator_auth::OperatorAddress;
use weir_telemetry::ExpositionFormat;
use weir_text::count;

/// The OpenAPI description of this listener and of the clients' listener.
const OPENAPI: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../openapi/weir.yaml"
));

/// The most connections. Operators are few. At the limit a new connection replaces an idle one.
const MAX_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that shutdown waits for responses that are being written.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The operators' listener with its connections. Dropping it cancels them at once;
/// [`AdminListener::shutdown`] waits for running responses.
#[derive(Debug)]
pub struct AdminListener {
    address: SocketAddr,
    /// A duplicate of the listening socket, for another process. It is closed with this value.
    socket: OwnedFd,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl AdminListener {
    /// Binds the listener, or takes over the `inherited` one. It accepts no connection yet.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listener(
        address: SocketAddr,
        inherited: Option<std::net::TcpListener>,
    ) -> std::io::Result<TcpListener> {
        match inherited {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            }
            None => TcpListener::bind(address).await,
        }
    }

    /// Accepts connections at the listener.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left.
    pub fn start(listener: TcpListener, state: Arc<AdminState>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let socket = listener.as_fd().try_clone_to_owned()?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        // The task that undoes expired changes ends with the listener: no new changes can be made
        // after that.
        tasks.spawn(
            stop.clone()
                .run_until_cancelled_owned(override_expiry::expire_overrides(state.clone())),
        );
        tasks.spawn(accept(listener, router(state), stop.clone(), tasks.clone()));
        Ok(Self {
            address,
            socket,
            stop,
            tasks,
        })
    }

    /// A duplicate of the listening socket, for a process that is to accept on it too.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// The address that the listener is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the listener and its connections.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        // Connections end once their response is written; one that does not is dropped with the
        // process.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, self.tasks.wait()).await;
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn router(state: Arc<AdminState>) -> Router {
    let open = Router::new()
        .route(LIVENESS_PATH, get(async || "alive\n"))
        .route(READINESS_PATH, get(readiness))
        .route(
            "/openapi.yaml",
            get(async || ([(header::CONTENT_TYPE, "application/yaml")], OPENAPI)),
        );
    let metrics =
        Router::new()
            .route("/metrics", get(scrape))
            .route_layer(middleware::from_fn_with_state(
                state.clone(),
                request_guard::authenticate_scrape,
            ));
    let guarded = operator_routes::guarded_routes(state.clone());
    let named = middleware::from_fn_with_state(state.clone(), request_guard::check_host);
    let all = open
        .merge(metrics)
        .merge(guarded)
        .fallback(page::unknown_path);
    all.layer(named)
        .layer(middleware::map_response(
            request_guard::add_security_headers,
        ))
        .with_state(state)
}

async fn readiness(State(state): State<Arc<AdminState>>) -> Response {
    match state.ready.is_ready() {
        true => match state
            .config_history
            .config()
            .team_files
            .iter()
            .filter(|file| file.is_faulty())
            .count()
        {
            0 => "ready\n".into_response(),
            // The files' names are left out: probes need no token.
            faulty => format!(
                "ready, but {} of `include` with errors: see /admin/config\n",
                count(faulty, "file")
            )
            .into_response(),
        },
        false => (StatusCode::SERVICE_UNAVAILABLE, not_ready_text(&state)).into_response(),
    }
}

/// Returns the text of a readiness that is not given. An id of a key is no secret.
fn not_ready_text(state: &AdminState) -> String {
    match state.ready.missing_key() {
        Some(key) => format!(
            "not ready: other replicas seal with key {key}, which this one lacks: add it to `keys`\n"
        ),
        None => "not ready\n".to_owned(),
    }
}

async fn scrape(State(state): State<Arc<AdminState>>, headers: HeaderMap) -> Response {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    let format = ExpositionFormat::accepted(accept);
    (
        [(header::CONTENT_TYPE, format.media_type())],
        state.metrics.page(format),
    )
        .into_response()
}

async fn accept(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let connections = AdminConnections::new(MAX_CONNECTIONS);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // The dropped stream is closed: the most requests allowed are in progress.
                let Some(connection) = connections.admit(peer.ip()) else {
                    continue;
                };
                tasks.spawn(serve_connection(
                    stream,
                    OperatorAddress(peer.ip()),
                    connection,
                    router.clone(),
                    stop.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "admin listener accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: OperatorAddress,
    connection: AdminConnection,
    router: Router,
    stop: CancellationToken,
) {
    let (busy, end) = (connection.requests(), connection.end());
    let service = hyper::service::service_fn(move |request| {
        let (busy, serving) = (busy(), serve(router.clone(), peer, request));
        async move {
            let _busy = busy;
            serving.await
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let mut http = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    // An operator's client that breaks the connection off is not an error.
    let _ = tokio::select! {
        ended = http.as_mut() => ended,
        () = end.cancelled() => return,
        () = stop.cancelled() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
}

async fn serve(
    router: Router,
    peer: OperatorAddress,
    mut request: Request<Incoming>,
) -> Result<Response, Infallible> {
    request.extensions_mut().insert(peer);
    router.oneshot(request.map(Body::new)).await
}
