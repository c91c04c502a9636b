//! The way to another replica: a TCP connection, or a stream of another kind.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir_core::port::BoxFuture;
use weir_http2_client::ReceiveWindow;

use crate::cluster_tls::ClusterTls;
use crate::peer_connection::{self, OpenFailure, OpenedPeer};

/// The time for a connection: TCP, TLS, and the first answer of the other replica.
const OPEN_TIME: Duration = Duration::from_secs(1);

/// Opens connections to other replicas.
pub trait PeerDialer: Send + Sync {
    /// Opens a stream to `host:port`, and begins the connection on it by `handshake`.
    fn open<'a>(
        &'a self,
        address: &'a str,
        handshake: PeerHandshake,
    ) -> BoxFuture<'a, io::Result<OpenedPeer>>;
}

/// The beginning of a connection on a stream: TLS with the keys that all replicas share, and HTTP/2.
pub struct PeerHandshake {
    pub(crate) tls: ClusterTls,
    pub(crate) window: ReceiveWindow,
}

impl PeerHandshake {
    /// Begins the connection. It is open once the other replica has answered.
    ///
    /// # Errors
    /// The stream fails, or the other replica refuses the keys.
    pub async fn begin<S>(self, stream: S) -> io::Result<OpenedPeer>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        peer_connection::begin(stream, &self.tls, self.window).await
    }
}

impl fmt::Debug for PeerHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerHandshake").finish_non_exhaustive()
    }
}

/// Opens a connection to `host:port`.
pub(crate) async fn open(
    dialer: &dyn PeerDialer,
    address: &str,
    handshake: PeerHandshake,
) -> Result<OpenedPeer, OpenFailure> {
    match timeout(OPEN_TIME, dialer.open(address, handshake)).await {
        Ok(opened) => opened.map_err(|error| OpenFailure::new(&error)),
        Err(_) => Err(OpenFailure("connection timed out".into())),
    }
}

/// Opens TCP connections.
pub(crate) struct TcpDialer;

impl PeerDialer for TcpDialer {
    fn open<'a>(
        &'a self,
        address: &'a str,
        handshake: PeerHandshake,
    ) -> BoxFuture<'a, io::Result<OpenedPeer>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            handshake.begin(stream).await
        })
    }
}
