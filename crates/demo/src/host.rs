//! The host of one server: the accept loop, the tasks of its connections, and the shutdown. It
//! knows no MCP.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::http::DemoBody;

/// The most connections. A demo needs few; a gateway in front of it pools them.
const MAX_CONNECTIONS: usize = 256;
/// The most time for a client to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The most time for running calls to end after shutdown began.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before the next accept after a failed one (file descriptors used up).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state that the owner of a server sets. One watch channel carries it, so no listener can miss
/// the last value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSignal {
    /// True if the extra tool is listed.
    pub(crate) revealed: bool,
    /// True if the server is ending: streams close gracefully.
    pub(crate) stopping: bool,
}

/// The receiving side of [`ServerSignal`].
pub(crate) type SignalReceiver = watch::Receiver<ServerSignal>;

/// An HTTP service that the accept loop can share between connections.
pub(crate) trait ServeRequest: Send + Sync + 'static {
    /// Answers one request. Dropped when the client closes the connection.
    fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<DemoBody>> + Send;
}

/// A running server. Dropping it ends the server and every connection at once;
/// [`RunningServer::shutdown`] ends it gently.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    signal: watch::Sender<ServerSignal>,
    task: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// The address of the MCP endpoint, such as `http://127.0.0.1:41234/mcp`.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Adds the server's extra tool to its list and notifies every listener with `list_changed`.
    /// The second call has no effect. Returns true if the tool was new.
    pub fn reveal(&self) -> bool {
        self.signal
            .send_if_modified(|signal| !std::mem::replace(&mut signal.revealed, true))
    }

    /// Removes the extra tool from the list again, and notifies every listener. Returns true if it
    /// was listed.
    pub fn hide(&self) -> bool {
        self.signal
            .send_if_modified(|signal| std::mem::replace(&mut signal.revealed, false))
    }

    /// Stops accepting, closes listen streams, lets running calls end for two seconds, then drops
    /// the rest. If the future is dropped the server ends at once.
    pub async fn shutdown(mut self) {
        self.signal.send_modify(|signal| signal.stopping = true);
        if let Some(task) = self.task.as_mut() {
            // The task can only fail by a panic of its own, which tokio has already reported.
            let _ = task.await;
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Starts the accept loop over the server that `build` makes.
pub(crate) fn start<S: ServeRequest>(
    listener: TcpListener,
    build: impl FnOnce(SignalReceiver) -> Arc<S>,
) -> io::Result<RunningServer> {
    let address = listener.local_addr()?;
    let (signal, signals) = watch::channel(ServerSignal::default());
    let server = build(signals.clone());
    let task = tokio::spawn(accept(listener, server, signals));
    Ok(RunningServer {
        address,
        signal,
        task: Some(task),
    })
}

/// Accepts and owns all connections: they live in its set, so they end with it.
async fn accept<S: ServeRequest>(
    listener: TcpListener,
    server: Arc<S>,
    mut signals: SignalReceiver,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = wait_for_stop(&mut signals) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&server), signals.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
    connections.shutdown().await;
}

async fn connection<S: ServeRequest>(
    stream: TcpStream,
    server: Arc<S>,
    mut signals: SignalReceiver,
) {
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.serve(request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // An error of a connection shows at the client.
        _ = connection.as_mut() => return,
        () = wait_for_stop(&mut signals) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Ends when the server must stop. An error means that its owner is gone, which ends it too.
async fn wait_for_stop(signals: &mut SignalReceiver) {
    drop(signals.wait_for(|signal| signal.stopping).await);
}
