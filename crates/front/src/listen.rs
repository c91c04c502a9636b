//! The listener: accept, caps, TLS, connection tasks, and the phases of a drain.
//!
//! Our own loop over hyper. `axum::serve` has no connection limit, sets no timer (so that half a
//! head is waited for without end), and costs more memory for each stream.

mod connection;
mod connection_activity;
mod connection_slots;
mod guarded_stream;
mod handshake_limit;
mod http2;
mod repoll_on_wake;
mod request_framing;
mod socket;
mod tls;
mod write_stall_watch;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use opentelemetry::KeyValue;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::budget::{ByteReservation, DescriptorPermit};
use weir_core::telemetry::instruments;

pub(crate) use connection::ClientPeer;
pub(crate) use connection_activity::RequestGuard;
use connection_slots::ConnectionSlots;
use handshake_limit::HandshakeLimit;
pub(crate) use http2::Http2Flow;
pub(crate) use socket::bind;
pub(crate) use tls::ListenerCertificates;
pub use tls::ListenerTlsError;

use crate::stack::FrontStack;

/// The wait of the accept loop when the process has no descriptor left (A14).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// The memory of a connection with one request of usual size.
const CONNECTION_BYTES: usize = 20 << 10;
/// The interval between checks of the certificate files.
const CERTIFICATE_POLL: Duration = Duration::from_secs(5);

/// The state that connections share.
pub(crate) struct ListenerState {
    /// Loaded once by every request.
    pub(crate) stack: ArcSwap<FrontStack>,
    /// Present if TLS is on.
    pub(crate) certificates: ArcSwapOption<ListenerCertificates>,
    acceptor: ArcSwapOption<rustls::ServerConfig>,
    slots: Arc<ConnectionSlots>,
    handshakes: Arc<HandshakeLimit>,
    /// Cancelled when draining begins: no new connections, idle ones close.
    pub(crate) drain: CancellationToken,
    /// Cancelled when draining is over: all connections close.
    pub(crate) force: CancellationToken,
    /// The accept loop and every connection.
    pub(crate) tasks: TaskTracker,
}

impl ListenerState {
    pub(crate) fn new(
        stack: FrontStack,
        certificates: Option<Arc<ListenerCertificates>>,
    ) -> Result<Arc<Self>, ListenerTlsError> {
        let handshakes = HandshakeLimit::new(stack.limits().handshakes);
        let (drain, force) = (stack.drain().clone(), CancellationToken::new());
        let listening = Self {
            stack: ArcSwap::from_pointee(stack),
            certificates: ArcSwapOption::empty(),
            acceptor: ArcSwapOption::empty(),
            slots: Arc::default(),
            handshakes,
            drain,
            force,
            tasks: TaskTracker::new(),
        };
        listening.use_certificates(certificates)?;
        Ok(Arc::new(listening))
    }

    /// Switches TLS on, off, or to other certificates, for connections accepted from now on.
    pub(crate) fn use_certificates(
        &self,
        certificates: Option<Arc<ListenerCertificates>>,
    ) -> Result<(), ListenerTlsError> {
        self.acceptor.store(
            certificates
                .as_ref()
                .map(ListenerCertificates::server_config)
                .transpose()?,
        );
        self.certificates.store(certificates);
        Ok(())
    }

    fn acceptor(&self) -> Option<TlsAcceptor> {
        self.acceptor.load_full().map(TlsAcceptor::from)
    }

    /// Starts the accept loop and the certificate watch as tasks of [`Self::tasks`]; both end with
    /// the drain.
    pub(crate) fn start(self: &Arc<Self>, listener: TcpListener) {
        self.tasks.spawn(
            self.drain
                .clone()
                .run_until_cancelled_owned(accept(self.clone(), listener)),
        );
        self.tasks.spawn(
            self.drain
                .clone()
                .run_until_cancelled_owned(watch_certificates(self.clone())),
        );
    }

    fn serve_connection(self: &Arc<Self>, stream: TcpStream, address: std::net::IpAddr) {
        let stack = self.stack.load();
        let limits = stack.limits();
        let slot =
            match self
                .slots
                .take(address, limits.connections, limits.connections_per_address)
            {
                Ok(slot) => slot,
                Err(none) => return count_closed(none.as_str()),
            };
        let Some(descriptor) = stack.descriptor() else {
            return count_closed("no_files");
        };
        let Some(memory) = stack.budgets().connections.try_reserve(CONNECTION_BYTES) else {
            return count_closed("memory");
        };
        socket::set_options(&stream, limits);
        let listening = self.clone();
        let force = self.force.clone();
        self.tasks.spawn(async move {
            let _open = OpenConnection::begin(slot, descriptor, memory);
            force
                .run_until_cancelled(connection::serve(stream, address, listening))
                .await;
        });
    }
}

/// An open connection: counted until it is dropped, also if its task ends by a panic.
struct OpenConnection {
    _slot: connection_slots::ConnectionSlot,
    _descriptor: DescriptorPermit,
    _memory: ByteReservation,
}

impl OpenConnection {
    fn begin(
        slot: connection_slots::ConnectionSlot,
        descriptor: DescriptorPermit,
        memory: ByteReservation,
    ) -> Self {
        instruments().connections.add(1, &[]);
        Self {
            _slot: slot,
            _descriptor: descriptor,
            _memory: memory,
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        instruments().connections.add(-1, &[]);
    }
}

/// Accepts until it is dropped; then the listening socket is closed.
async fn accept(listening: Arc<ListenerState>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => listening.serve_connection(stream, peer.ip().to_canonical()),
            Err(error) if is_exhaustion(&error) => {
                count_closed("no_files");
                tracing::warn!(%error, "accept failed: out of file descriptors or memory");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
            // The client disconnected before the accept.
            Err(error) => tracing::debug!(%error, "accept failed"),
        }
    }
}

/// `ENFILE`, `EMFILE`, `ENOMEM`, `ENOBUFS`: accepting again at once would spin.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24 | 12 | 105 | 55))
}

async fn watch_certificates(listening: Arc<ListenerState>) {
    loop {
        tokio::time::sleep(CERTIFICATE_POLL).await;
        let Some(certificates) = listening.certificates.load_full() else {
            continue;
        };
        let read = certificates.clone();
        match tokio::task::spawn_blocking(move || read.refresh()).await {
            Ok(Ok(true)) => match listening.use_certificates(Some(certificates)) {
                Ok(()) => tracing::info!("certificates reloaded"),
                Err(error) => tracing::error!(%error, "certificate reload failed"),
            },
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "certificate reload failed: previous certificates stay in use")
            }
        }
    }
}

/// Counts a stream of HTTP/2 that weir reset.
fn count_reset_stream(reason: &'static str) {
    instruments()
        .streams_reset
        .add(1, &[KeyValue::new("reason", reason)]);
}

/// Counts a connection that weir closed or refused.
fn count_closed(reason: &'static str) {
    instruments()
        .connections_closed
        .add(1, &[KeyValue::new("reason", reason)]);
}
