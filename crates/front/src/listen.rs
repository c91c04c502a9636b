//! The listener: accept, caps, TLS, connection tasks, and the phases of a drain.
//!
//! Our own loop over hyper. `axum::serve` has no connection limit, sets no timer (so that half a
//! head is waited for without end), and costs more memory for each stream.

mod connection;
mod framing;
mod guarded;
mod handshakes;
mod http2;
mod prompt;
mod pulse;
mod slots;
mod socket;
mod tls;
mod write_watch;

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

pub(crate) use connection::Peer;
use handshakes::Handshakes;
pub(crate) use http2::Flow;
pub(crate) use pulse::Beat;
use slots::Slots;
pub(crate) use socket::bind;
pub(crate) use tls::Certificates;
pub use tls::TlsError;

use crate::stack::Stack;

/// The wait of the accept loop when the process has no descriptor left (A14).
const BACKOFF: Duration = Duration::from_millis(100);
/// The memory of a connection with one request of usual size.
const CONNECTION: usize = 20 << 10;
/// The interval between checks of the certificate files.
const CERTIFICATE_POLL: Duration = Duration::from_secs(5);

/// The state that connections share.
pub(crate) struct Listening {
    /// Loaded once by every request.
    pub(crate) stack: ArcSwap<Stack>,
    /// Present if TLS is on.
    pub(crate) certificates: ArcSwapOption<Certificates>,
    acceptor: ArcSwapOption<rustls::ServerConfig>,
    slots: Arc<Slots>,
    handshakes: Arc<Handshakes>,
    /// Cancelled when draining begins: no new connections, idle ones close.
    pub(crate) drain: CancellationToken,
    /// Cancelled when draining is over: all connections close.
    pub(crate) force: CancellationToken,
    /// The accept loop and every connection.
    pub(crate) tasks: TaskTracker,
}

impl Listening {
    pub(crate) fn new(
        stack: Stack,
        certificates: Option<Arc<Certificates>>,
    ) -> Result<Arc<Self>, TlsError> {
        let handshakes = Handshakes::new(stack.limits().handshakes);
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
        certificates: Option<Arc<Certificates>>,
    ) -> Result<(), TlsError> {
        self.acceptor.store(
            certificates
                .as_ref()
                .map(Certificates::server_config)
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

    fn admit(self: &Arc<Self>, stream: TcpStream, address: std::net::IpAddr) {
        let stack = self.stack.load();
        let limits = stack.limits();
        let slot =
            match self
                .slots
                .take(address, limits.connections, limits.connections_per_address)
            {
                Ok(slot) => slot,
                Err(none) => return closed(none.as_str()),
            };
        let Some(descriptor) = stack.descriptor() else {
            return closed("no_files");
        };
        let Some(memory) = stack.budgets().connections.try_reserve(CONNECTION) else {
            return closed("memory");
        };
        socket::tune(&stream, limits);
        let listening = self.clone();
        let force = self.force.clone();
        self.tasks.spawn(async move {
            let _open = Open::begin(slot, (descriptor, memory));
            force
                .run_until_cancelled(connection::serve(stream, address, listening))
                .await;
        });
    }
}

/// An open connection: counted until it is dropped, also if its task ends by a panic.
struct Open {
    _slot: slots::Slot,
    _held: (DescriptorPermit, ByteReservation),
}

impl Open {
    fn begin(slot: slots::Slot, held: (DescriptorPermit, ByteReservation)) -> Self {
        instruments().connections.add(1, &[]);
        Self {
            _slot: slot,
            _held: held,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        instruments().connections.add(-1, &[]);
    }
}

/// Accepts until it is dropped; then the listening socket is closed.
async fn accept(listening: Arc<Listening>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => listening.admit(stream, peer.ip().to_canonical()),
            Err(error) if is_exhaustion(&error) => {
                closed("no_files");
                tracing::warn!(%error, "cannot accept: out of files or memory");
                tokio::time::sleep(BACKOFF).await;
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

async fn watch_certificates(listening: Arc<Listening>) {
    loop {
        tokio::time::sleep(CERTIFICATE_POLL).await;
        let Some(certificates) = listening.certificates.load_full() else {
            continue;
        };
        let read = certificates.clone();
        match tokio::task::spawn_blocking(move || read.refresh()).await {
            Ok(Ok(true)) => match listening.use_certificates(Some(certificates)) {
                Ok(()) => tracing::info!("certificate files changed and were read again"),
                Err(error) => tracing::error!(%error, "changed certificate files are not usable"),
            },
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "changed certificate files are not usable: the old ones stay in use")
            }
        }
    }
}

/// Counts a stream of HTTP/2 that weir reset.
fn reset(reason: &'static str) {
    instruments()
        .streams_reset
        .add(1, &[KeyValue::new("reason", reason)]);
}

/// Counts a connection that weir closed or refused.
fn closed(reason: &'static str) {
    instruments()
        .connections_closed
        .add(1, &[KeyValue::new("reason", reason)]);
}
