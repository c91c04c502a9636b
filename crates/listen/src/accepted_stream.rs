//! The stream of an accepted connection: a TCP socket, or one of another kind.

use std::future::Future;
use std::io::ErrorKind;
use std::mem::MaybeUninit;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

/// The stream of an accepted connection.
pub trait AcceptedStream: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    /// Waits until the other side has sent something, or has closed the stream.
    fn wait_readable(&self) -> impl Future<Output = ()> + Send;
}

impl AcceptedStream for TcpStream {
    async fn wait_readable(&self) {
        // The next read reports errors of the socket.
        let _begun = self.peek(&mut [0]).await;
    }
}

impl AcceptedStream for UnixStream {
    async fn wait_readable(&self) {
        let peek = || SockRef::from(self).peek(&mut [MaybeUninit::uninit()]);
        // The runtime takes a new stream for readable until a read finds nothing.
        while self.readable().await.is_ok() {
            let found = self.try_io(Interest::READABLE, peek);
            if !found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    async fn assert_waits(accepted: impl AcceptedStream, mut other: impl AsyncWrite + Unpin) {
        let silence = Duration::from_millis(50);
        for _ in 0..2 {
            assert!(timeout(silence, accepted.wait_readable()).await.is_err());
        }
        other.write_all(b"x").await.unwrap();
        accepted.wait_readable().await;
        // Nothing was read.
        accepted.wait_readable().await;
    }

    #[tokio::test]
    async fn silent_stream_is_not_readable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        assert_waits(listener.accept().await.unwrap().0, client.unwrap()).await;
        let (one, other) = UnixStream::pair().unwrap();
        assert_waits(one, other).await;
    }

    #[tokio::test]
    async fn closed_stream_is_readable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).await);
        listener.accept().await.unwrap().0.wait_readable().await;
        let (one, other) = UnixStream::pair().unwrap();
        drop(other);
        one.wait_readable().await;
    }
}
