//! The listener of the client side, from bytes to requests: accept, limits of connections, TLS,
//! HTTP/1.1 and HTTP/2, timeouts of heads, and the phases of a drain.
//!
//! It knows no path and no message of MCP: a [`RequestService`] answers the requests. It is our own
//! loop over hyper, because `axum::serve` has no connection limit, sets no timer (so that half a
//! head is waited for without end), and costs more memory for each stream.

mod accepted_stream;
mod address_range;
mod client_network;
mod client_peer;
mod connection;
mod connection_activity;
mod connection_counts;
mod connection_slots;
mod forwarded_requests;
mod forwarding;
mod guarded_stream;
mod handshake_limit;
mod http2;
mod listener_settings;
mod listener_state;
mod operator_requests;
mod poll_on_wake;
mod process_requests;
mod replica_streams;
mod repoll_on_wake;
mod request_body;
mod request_framing;
mod request_service;
mod socket;
mod sync;
mod tls;
mod write_stall_watch;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use weir_core::budget::{ByteReservation, ConnectionSide, DescriptorPermit};
use weir_core::supervision::run_supervised;
use weir_core::telemetry::instruments;

use connection_counts::count_closed;

pub use accepted_stream::AcceptedStream;
pub use address_range::{AddressRange, BadAddressRange};
pub use client_peer::{ClientPeer, ForwardingReplica};
pub use connection_activity::{ConnectionActivity, RequestGuard};
pub use forwarded_requests::ForwardedRequests;
pub use forwarding::{
    ANSWERED_BY_HEADER, FORWARDED_HEADER, ForwardError, ForwardedBody, ForwardedClient,
    ForwardedRequest, ForwardedSender, KEPT_TASK_HEADER, KeptTaskPart, NOT_OWNER_HEADER,
    OtherProcess, RequestForwarder, answered_by_header, not_owner_header, remove_internal_headers,
    replica_of_header,
};
pub use guarded_stream::{DISCARD_TIME, DISCARDED_BYTES};
pub use http2::flow_control::Http2Flow;
pub use http2::http2_shared::Http2Shared;
pub use listener_settings::{ClientCertificates, H2Limits, ListenerLimits, ListenerTlsFiles};
pub use listener_state::ListenerState;
pub use operator_requests::{
    OPERATOR_HEADER, OPERATOR_REQUESTS, OperatorRequest, OperatorRequests, OperatorRequestsSlot,
};
pub use process_requests::ProcessRequests;
pub use replica_streams::{
    ReplicaStreams, ReplicaStreamsSlot, STREAM_HEADER, STREAM_PATH, STREAM_VERSION,
};
pub use request_body::{BodyError, RequestBody};
pub use request_service::{IncomingRequest, RequestService, ServedBody};
pub use socket::bind;
pub use tls::{ListenerCertificates, ListenerTlsError, check_tls_files};

/// The wait of the accept loop when the process has no descriptor left (A14).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// The memory of a connection with one request of usual size.
const CONNECTION_BYTES: usize = 20 << 10;
/// The interval between checks of the certificate files.
const CERTIFICATE_POLL: Duration = Duration::from_secs(5);

impl<R: RequestService> ListenerState<R> {
    /// Starts the accept loop and the certificate watch as tasks of [`Self::tasks`]; both end with
    /// the drain.
    pub fn start(self: &Arc<Self>, listener: TcpListener) {
        let listening = self.clone();
        self.tasks.spawn(async move {
            let drain = listening.drain.clone();
            drain
                .run_until_cancelled(accept(&listening, &listener))
                .await;
            if let Err(error) = accept_waiting(&listening, listener) {
                tracing::debug!(%error, "accept failed");
            }
        });
        let watched = self.clone();
        let watching = run_supervised("watch of certificates", move || {
            watch_certificates(watched.clone())
        });
        self.tasks
            .spawn(self.drain.clone().run_until_cancelled_owned(watching));
    }

    /// Serves one accepted connection, within the limits of connections, as a task of
    /// [`Self::tasks`].
    pub fn serve_connection(
        self: &Arc<Self>,
        stream: impl AcceptedStream,
        address: std::net::IpAddr,
    ) {
        let service = self.service();
        let (limits, budgets) = (service.limits(), &self.budgets);
        let slot = match self.slots.take(address, limits, service.trusted_proxies()) {
            Ok(slot) => slot,
            Err(none) => {
                self.slots.warn(address, none);
                return count_closed(none.as_str());
            }
        };
        let Some(descriptor) = budgets.descriptors.take(ConnectionSide::Front) else {
            return count_closed("no_files");
        };
        let Some(memory) = budgets.connections.try_reserve(CONNECTION_BYTES) else {
            return count_closed("memory");
        };
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

/// Accepts until it is dropped.
async fn accept<R: RequestService>(listening: &Arc<ListenerState<R>>, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            // The panic is logged, and ends this connection alone.
            Ok((stream, peer)) => drop(catch_unwind(AssertUnwindSafe(|| {
                serve_socket(listening, stream, peer);
            }))),
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

fn serve_socket<R: RequestService>(
    listening: &Arc<ListenerState<R>>,
    stream: TcpStream,
    peer: SocketAddr,
) {
    socket::set_options(&stream, listening.peek_service().limits());
    listening.serve_connection(stream, peer.ip().to_canonical());
}

/// Accepts the connections that wait, and closes the socket. A client whose connection is open may
/// have sent its request: the system would reset a connection that nobody accepted.
fn accept_waiting<R: RequestService>(
    listening: &Arc<ListenerState<R>>,
    listener: TcpListener,
) -> io::Result<()> {
    // tokio asks the system again only once it heard of a connection.
    let listener = listener.into_std()?;
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                stream.set_nonblocking(true)?;
                serve_socket(listening, TcpStream::from_std(stream)?, peer);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// `ENFILE`, `EMFILE`, `ENOMEM`, `ENOBUFS`: accepting again at once would spin.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24 | 12 | 105 | 55))
}

async fn watch_certificates<R: RequestService>(listening: Arc<ListenerState<R>>) {
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
