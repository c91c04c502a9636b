//! A TCP connection that a behaviour can break after a number of bytes, as a crashing server does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The count of bytes that a connection may still write before it is reset. Clones share the
/// connection's count.
#[derive(Clone, Debug)]
pub(super) struct ResetSwitch(Arc<AtomicUsize>);

impl ResetSwitch {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }

    pub(super) fn reset_after(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// The connection. Its reset is a real one: the peer reads `ECONNRESET`.
#[derive(Debug)]
pub(super) struct BreakableStream {
    stream: TcpStream,
    switch: ResetSwitch,
}

impl BreakableStream {
    pub(super) fn new(stream: TcpStream, switch: ResetSwitch) -> Self {
        Self { stream, switch }
    }
}

impl AsyncRead for BreakableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BreakableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let allowed = self.switch.0.load(Ordering::Relaxed);
        if allowed == usize::MAX {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        if allowed == 0 && !bytes.is_empty() {
            // Closing a socket that lingers for no time resets it.
            self.stream.set_zero_linger()?;
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let length = bytes.len().min(allowed);
        let written =
            std::task::ready!(Pin::new(&mut self.stream).poll_write(context, &bytes[..length]))?;
        self.switch.0.store(allowed - written, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.switch.0.load(Ordering::Relaxed) != usize::MAX {
            self.stream.set_zero_linger()?;
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
