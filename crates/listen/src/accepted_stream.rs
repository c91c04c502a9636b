//! The stream of an accepted connection: a TCP socket, or one of another kind.

use std::future::Future;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The stream of an accepted connection.
pub trait AcceptedStream: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    /// Waits until the other side has sent something, or has closed the stream.
    fn wait_readable(&self) -> impl Future<Output = ()> + Send;
}

impl AcceptedStream for TcpStream {
    async fn wait_readable(&self) {
        // The next read reports errors of the socket.
        let _begun = self.readable().await;
    }
}

impl AcceptedStream for UnixStream {
    async fn wait_readable(&self) {
        let _begun = self.readable().await;
    }
}
