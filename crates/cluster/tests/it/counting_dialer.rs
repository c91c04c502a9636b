//! Connections whose read bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use weir_cluster::{OpenedPeer, PeerDialer, PeerHandshake};
use weir_core::port::BoxFuture;

/// Opens TCP connections, and counts the bytes that are read from all of them.
#[derive(Default)]
pub(crate) struct CountingDialer {
    pub(crate) read: Arc<watch::Sender<usize>>,
}

impl PeerDialer for CountingDialer {
    fn open<'a>(
        &'a self,
        address: &'a str,
        handshake: PeerHandshake,
    ) -> BoxFuture<'a, io::Result<OpenedPeer>> {
        Box::pin(async move {
            let stream = CountedStream {
                inner: TcpStream::connect(address).await?,
                read: self.read.clone(),
            };
            handshake.begin(stream).await
        })
    }
}

struct CountedStream {
    inner: TcpStream,
    read: Arc<watch::Sender<usize>>,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let more = buffer.filled().len() - before;
        self.read.send_modify(|read| *read += more);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
