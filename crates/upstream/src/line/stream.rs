//! The bytes of a connection, in clear or by TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

type Dialled = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A connection. In clear nothing stands between it and the socket.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TokioIo<Dialled>>),
}

impl From<Dialled> for Stream {
    fn from(dialled: Dialled) -> Self {
        match dialled {
            MaybeHttpsStream::Http(stream) => Self::Plain(stream.into_inner()),
            stream @ MaybeHttpsStream::Https(_) => Self::Tls(Box::new(TokioIo::new(stream))),
        }
    }
}

impl Stream {
    /// True if both sides agreed on HTTP/2.
    pub(super) fn is_h2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.inner().connected().is_negotiated_h2(),
        }
    }
}

/// The call of the same name on whichever it is.
macro_rules! either {
    ($self:ident, $call:ident, $($argument:expr),*) => {
        match $self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).$call($($argument),*),
            Self::Tls(stream) => Pin::new(&mut **stream).$call($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, poll_write_vectored, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown, cx)
    }
}
