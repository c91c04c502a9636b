//! The byte stream of a connection, in clear or over TLS.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::TokioIo;
use rustls::ClientConnection;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

type DialledStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A byte stream. In clear it is the socket itself.
#[derive(Debug)]
pub(super) enum ByteStream {
    Plain(TcpStream),
    Tls(Box<TokioIo<DialledStream>>),
}

impl From<DialledStream> for ByteStream {
    fn from(dialled: DialledStream) -> Self {
        match dialled {
            MaybeHttpsStream::Http(stream) => Self::Plain(stream.into_inner()),
            stream @ MaybeHttpsStream::Https(_) => Self::Tls(Box::new(TokioIo::new(stream))),
        }
    }
}

impl ByteStream {
    /// True if both sides agreed on HTTP/2.
    pub(super) fn is_h2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.inner().connected().is_negotiated_h2(),
        }
    }

    /// True if the peer has neither closed the connection nor sent data. Checks the socket itself,
    /// because the runtime learns of new data only when it polls.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.with_socket(|tcp, tls| would_block(&inspect(tcp, tls)))
    }

    /// Checks the same without a system call, by the runtime's last poll. The result is as old as
    /// that poll.
    pub(super) fn is_quiet_since_last_poll(&mut self) -> bool {
        let is_ready = self
            .tcp()
            .poll_read_ready(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        // The data may be a TLS record without application data.
        !is_ready || self.is_quiet()
    }

    /// Waits until the connection is not quiet any more. Cancel safe.
    pub(super) async fn wait_until_disturbed(&mut self) {
        while self.tcp().readable().await.is_ok() {
            // Inside `try_io`, so that the runtime waits for the next event if no data was found.
            let found =
                self.with_socket(|tcp, tls| tcp.try_io(Interest::READABLE, || inspect(tcp, tls)));
            if !would_block(&found) {
                return;
            }
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(stream) => match stream.inner() {
                MaybeHttpsStream::Http(tcp) => tcp.inner(),
                MaybeHttpsStream::Https(secure) => secure.inner().get_ref().0.inner().inner(),
            },
        }
    }

    fn with_socket<R>(
        &mut self,
        act: impl FnOnce(&TcpStream, Option<&mut ClientConnection>) -> R,
    ) -> R {
        match self {
            Self::Plain(tcp) => act(tcp, None),
            Self::Tls(stream) => match stream.inner_mut() {
                MaybeHttpsStream::Http(tcp) => act(tcp.inner(), None),
                MaybeHttpsStream::Https(secure) => {
                    let (tcp, tls) = secure.inner_mut().get_mut();
                    act(tcp.inner().inner(), Some(tls))
                }
            },
        }
    }
}

/// The most TLS records that are read of an idle connection at once. A server has no reason to send
/// so many.
const MAX_TLS_RECORDS: usize = 64;

/// Returns `WouldBlock` if the connection is quiet. Over TLS, records are read: session tickets and
/// key updates may come at any time and are quiet; application data, an alert and the end of the
/// connection are not.
fn inspect(tcp: &TcpStream, tls: Option<&mut ClientConnection>) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    let Some(tls) = tls else {
        return socket.peek(&mut [MaybeUninit::uninit()]).map(drop);
    };
    for _ in 0..MAX_TLS_RECORDS {
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        if state.plaintext_bytes_to_read() > 0
            || state.peer_has_closed()
            || tls.read_tls(&mut &*socket)? == 0
        {
            return Ok(());
        }
    }
    Ok(())
}

fn would_block(found: &io::Result<()>) -> bool {
    found
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Forwards the call of the same name to the inner stream.
macro_rules! either {
    ($self:ident, $call:ident, $($argument:expr),*) => {
        match $self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).$call($($argument),*),
            Self::Tls(stream) => Pin::new(&mut **stream).$call($($argument),*),
        }
    };
}

impl AsyncRead for ByteStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
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
