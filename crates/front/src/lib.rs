//! The client side of weir, put together: the order of layers that each request passes
//! ([`router`]), modern and legacy requests, methods and replies. The listener, sessions and the
//! layers are crates of their own.
//!
//! It has no upstream and no HTTP client; it reaches other crates through ports of core.

mod handler;
mod in_memory;
pub(crate) mod keep_alive;
mod method;
mod overview;
pub(crate) mod reply;
mod router;
pub(crate) mod session;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_layers::state::FrontState;
pub use weir_listen::{
    AcceptedStream, ForwardError, ForwardedBody, ForwardedClient, ForwardedRequest,
    ForwardedSender, ListenerTlsError, OPERATOR_HEADER, OPERATOR_REQUESTS, OperatorRequest,
    OperatorRequests, OtherProcess, ProcessRequests, ReplicaStreams, RequestForwarder,
    check_tls_files,
};
use weir_listen::{
    ForwardedRequests, ListenerCertificates, ListenerState, OperatorRequestsSlot,
    ReplicaStreamsSlot,
};
use weir_router::Router;
use weir_seal::Sealer;

pub use in_memory::{FrontStopped, InMemoryBody, InMemoryChannel, UpcomingRequest};
pub use overview::{FrontOverview, SessionSeen};
pub use weir_layers::failure::{
    ErrorRow, MessageErrorRow, RefusalRow, error_table, message_error_table, refusal_table,
};
pub use weir_layers::http::sse_path::SSE_PATHS;
pub use weir_layers::http::well_known_documents::WELL_KNOWN_PATHS;
pub use weir_layers::memory_pressure::{MemoryPressure, PressureHandle};
pub use weir_layers::ports::{FrontPorts, ReplicaPorts};
pub use weir_layers::settings::{self, FrontSettings};
pub use weir_session::{ClientSeen, MovedSession, MovingSessions, StreamSeen};

use router::FrontRouter;

/// The longest wait for clients to read the last events of their streams when a drain is over.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The running client side.
pub struct Front {
    listening: Arc<ListenerState<FrontRouter>>,
    shared: Arc<FrontState>,
    address: SocketAddr,
    /// The listener for the other replicas, if there are any.
    cluster: OnceLock<ClusterListener>,
    /// The requests of the other processes of graceful restarts.
    processes: Arc<ProcessRequests>,
    /// A duplicate of the listening socket for another process. Absent once the drain begins:
    /// clients must not queue up at it then.
    socket: Mutex<Option<OwnedFd>>,
}

/// The listener for other replicas.
struct ClusterListener {
    listening: Arc<ListenerState<ForwardedRequests<FrontRouter>>>,
    /// The answerer of operators' requests that other replicas forward.
    operators: OperatorRequestsSlot,
    /// The answerer of streams that other replicas open.
    streams: ReplicaStreamsSlot,
    /// A duplicate of its socket for another process. Absent once the drain begins.
    socket: Mutex<Option<OwnedFd>>,
}

/// The reason that the client side did not start, or did not take a reload.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The listener cannot be bound to the address.
    #[error(transparent)]
    Address(#[from] io::Error),
    /// The certificate files cannot be used.
    #[error(transparent)]
    Tls(#[from] ListenerTlsError),
}

impl Front {
    /// Binds the listener at `settings.listen`, or takes the `inherited` one. It serves no
    /// connection yet, so the caller can check the bound address before the first accept. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// The address is taken or not allowed.
    pub fn listener(
        settings: &FrontSettings,
        inherited: Option<TcpListener>,
    ) -> Result<TcpListener, BindError> {
        Ok(
            weir_listen::bind(inherited, settings.listen, settings.limits.listener.backlog)?
                .into_std()?,
        )
    }

    /// Listens and serves, at the `inherited` listening socket if there is one.
    ///
    /// # Errors
    /// The address is taken or not allowed, or the certificates cannot be used.
    pub async fn bind(
        settings: FrontSettings,
        inherited: Option<TcpListener>,
        ports: FrontPorts,
        router: Arc<Router>,
        sealer: Sealer,
    ) -> Result<Self, BindError> {
        let certificates = certificates(&settings)?;
        let listener =
            weir_listen::bind(inherited, settings.listen, settings.limits.listener.backlog)?;
        let address = listener.local_addr()?;
        let socket = listener.as_fd().try_clone_to_owned()?;
        let shared = FrontState::new(ports, router, sealer);
        let front = Self::new(settings, address, shared, certificates, Some(socket))?;
        front.listening.start(listener);
        front.shared.start();
        Ok(front)
    }

    /// Serves at [`InMemoryChannel`]s alone: no socket is open. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn in_memory(
        settings: FrontSettings,
        ports: FrontPorts,
        router: Arc<Router>,
        sealer: Sealer,
    ) -> Result<Self, BindError> {
        let certificates = certificates(&settings)?;
        // An address of this machine, so that its host is a known one.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let shared = FrontState::new(ports, router, sealer);
        let front = Self::new(settings, address, shared, certificates, None)?;
        front.shared.start();
        Ok(front)
    }

    fn new(
        settings: FrontSettings,
        address: SocketAddr,
        shared: Arc<FrontState>,
        certificates: Option<Arc<ListenerCertificates>>,
        socket: Option<OwnedFd>,
    ) -> Result<Self, ListenerTlsError> {
        let listening = listener_of(settings, address, &shared, certificates)?;
        Ok(Self {
            processes: Arc::new(ProcessRequests::new(&listening, &shared.ports.budgets)?),
            listening,
            shared,
            address,
            cluster: OnceLock::new(),
            socket: Mutex::new(socket),
        })
    }

    /// Serves the requests that other replicas forward, at a bound socket of its own. Once.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn serve_replicas(
        &self,
        listener: tokio::net::TcpListener,
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<(), BindError> {
        let socket = listener.as_fd().try_clone_to_owned()?;
        self.open_cluster_listener(tls, Some(socket))?
            .start(listener);
        Ok(())
    }

    /// As [`Self::serve_replicas`], at streams that the returned function is given with the address
    /// of their other end, instead of a socket.
    ///
    /// # Errors
    /// As [`Self::serve_replicas`].
    pub fn serve_replicas_at_streams<S: AcceptedStream>(
        &self,
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<impl Fn(S, IpAddr) + use<S>, BindError> {
        let listening = self.open_cluster_listener(tls, None)?;
        Ok(move |stream, address| listening.serve_connection(stream, address))
    }

    fn open_cluster_listener(
        &self,
        tls: Arc<rustls::ServerConfig>,
        socket: Option<OwnedFd>,
    ) -> Result<Arc<ListenerState<ForwardedRequests<FrontRouter>>>, BindError> {
        let operators = OperatorRequestsSlot::default();
        let streams = ReplicaStreamsSlot::default();
        let requests = ForwardedRequests::new(self.listening.clone())
            .with_operators(operators.clone())
            .with_streams(streams.clone());
        let listening = ListenerState::new(
            requests,
            self.shared.ports.budgets.clone(),
            CancellationToken::new(),
            None,
        )?;
        listening.use_server_config(tls);
        // A second call would serve beside the first.
        let _first = self.cluster.set(ClusterListener {
            listening: listening.clone(),
            operators,
            streams,
            socket: Mutex::new(socket),
        });
        Ok(listening)
    }

    /// Answers the requests of operators that other replicas forward from now on. Once; no effect
    /// without a listener for replicas.
    pub fn answer_operators(&self, operators: Arc<dyn OperatorRequests>) {
        if let Some(cluster) = self.cluster.get() {
            // A second call would change the answerer of running requests.
            let _first = cluster.operators.set(operators);
        }
    }

    /// Answers the streams that other replicas open from now on. Once; no effect without a listener
    /// for replicas.
    pub fn answer_streams(&self, streams: Arc<dyn ReplicaStreams>) {
        if let Some(cluster) = self.cluster.get() {
            // A second call would change the answerer of running streams.
            let _first = cluster.streams.set(streams);
        }
    }

    /// Uses other keys for the connections of replicas that are accepted from now on. Open ones
    /// stay. No effect without a listener for replicas.
    pub fn use_replica_tls(&self, tls: Arc<rustls::ServerConfig>) {
        if let Some(cluster) = self.cluster.get() {
            cluster.listening.use_server_config(tls);
        }
    }

    /// A duplicate of the socket of the listener for other replicas, for a successor process;
    /// `None` if there is no such listener.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn cluster_socket(&self) -> io::Result<Option<OwnedFd>> {
        let Some(cluster) = self.cluster.get() else {
            return Ok(None);
        };
        let socket = cluster.socket.lock();
        socket.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// A new channel inside the process.
    #[must_use]
    pub fn channel(&self) -> InMemoryChannel {
        InMemoryChannel::new(self.listening.clone())
    }

    /// The bound address; port 0 without a listening socket.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A duplicate of the listening socket, for a successor process that will also serve at it.
    ///
    /// # Errors
    /// The system has no descriptor left, or the drain has begun.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let socket = self.socket.lock();
        socket
            .as_ref()
            .ok_or_else(|| io::Error::other("it is closed"))?
            .try_clone()
    }

    /// Applies new settings, and the catalog's endpoints as they are now, from the next request on.
    /// The address stays.
    ///
    /// # Errors
    /// New certificate files cannot be used; the old settings then stay in force.
    pub fn reload(&self, settings: FrontSettings) -> Result<(), BindError> {
        let certificates = certificates(&settings)?;
        self.listening.use_certificates(certificates)?;
        let router = FrontRouter::new(settings, self.address, &self.shared);
        self.listening.replace_service(router);
        if let Some(cluster) = self.cluster.get() {
            // The limits of its connections follow from those of the settings.
            let requests = ForwardedRequests::new(self.listening.clone())
                .with_operators(cluster.operators.clone())
                .with_streams(cluster.streams.clone());
            cluster.listening.replace_service(requests);
        }
        Ok(())
    }

    /// The state of the client side for operators.
    #[must_use]
    pub fn overview(&self) -> FrontOverview {
        FrontOverview(self.shared.clone())
    }

    /// The sessions, for a graceful restart.
    #[must_use]
    pub fn moving_sessions(&self) -> MovingSessions {
        MovingSessions::new(self.shared.sessions.clone())
    }

    /// The requests of the other processes of graceful restarts.
    #[must_use]
    pub fn process_requests(&self) -> &Arc<ProcessRequests> {
        &self.processes
    }

    /// The handle that reports memory pressure.
    #[must_use]
    pub fn pressure(&self) -> PressureHandle {
        self.shared.pressure_handle()
    }

    /// Stops accepting, and ends listening streams gracefully. [`Self::drain`] does so, too.
    pub fn begin_drain(&self) {
        self.listening.drain().cancel();
        self.socket.lock().take();
        self.listening.tasks().close();
    }

    /// Stops accepting, ends listening streams gracefully, lets calls finish for at most
    /// `deadline`, then closes everything. Other replicas and processes may send requests until
    /// `calls_end` completes: the answers to questions of calls that run here come from them.
    pub async fn drain(&self, deadline: Duration, calls_end: impl Future<Output = ()>) {
        self.begin_drain();
        let done = async {
            calls_end.await;
            self.leave_replicas();
            self.processes.begin_drain();
            self.listening.tasks().wait().await;
            if let Some(cluster) = self.cluster.get() {
                cluster.listening.tasks().wait().await;
            }
            self.processes.wait_for_end().await;
            self.shared.shutdown.wait_for_detached().await;
        };
        if tokio::time::timeout(deadline, done).await.is_err() {
            tracing::warn!("drain deadline exceeded: running calls are cancelled");
        }
        self.leave_replicas();
        self.processes.begin_drain();
        // Open streams end with a last event, which their clients wait for.
        self.shared.shutdown.force().cancel();
        let written = async {
            self.listening.tasks().wait().await;
            if let Some(cluster) = self.cluster.get() {
                cluster.listening.tasks().wait().await;
            }
        };
        let _in_time = tokio::time::timeout(LAST_EVENT_TIMEOUT, written).await;
        self.listening.force().cancel();
        self.listening.tasks().wait().await;
        if let Some(cluster) = self.cluster.get() {
            cluster.listening.force().cancel();
            cluster.listening.tasks().wait().await;
        }
        self.processes.force();
        self.processes.wait_for_end().await;
        self.shared.shutdown.wait_for_background().await;
    }

    /// Waits until the last connection of a client has ended, once a drain has begun.
    pub async fn wait_for_connections(&self) {
        self.listening.tasks().wait().await;
    }

    /// Stops accepting requests of other replicas. No effect without a listener for replicas.
    pub fn leave_replicas(&self) {
        let Some(cluster) = self.cluster.get() else {
            return;
        };
        cluster.socket.lock().take();
        cluster.listening.drain().cancel();
        cluster.listening.tasks().close();
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.listening.drain().cancel();
        self.listening.force().cancel();
        self.shared.shutdown.force().cancel();
        if let Some(cluster) = self.cluster.get() {
            cluster.listening.drain().cancel();
            cluster.listening.force().cancel();
        }
        self.processes.begin_drain();
        self.processes.force();
    }
}

/// The state of a listener with the service of these settings. Its connections end with the drain.
fn listener_of(
    settings: FrontSettings,
    address: SocketAddr,
    shared: &Arc<FrontState>,
    certificates: Option<Arc<ListenerCertificates>>,
) -> Result<Arc<ListenerState<FrontRouter>>, ListenerTlsError> {
    ListenerState::new(
        FrontRouter::new(settings, address, shared),
        shared.ports.budgets.clone(),
        shared.shutdown.drain().clone(),
        certificates,
    )
}

fn certificates(
    settings: &FrontSettings,
) -> Result<Option<Arc<ListenerCertificates>>, ListenerTlsError> {
    settings
        .tls
        .as_ref()
        .map(ListenerCertificates::read)
        .transpose()
}
