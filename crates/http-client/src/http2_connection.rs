//! An HTTP/2 connection: many requests at once, by hyper.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use weir_core::budget::{ByteBudget, DescriptorPermit};

use super::bounded_connection::BoundedConnection;
use super::byte_stream::ByteStream;
use super::http_error::UpstreamHttpError;
use weir_http1::OutgoingRequest;

/// The silence on a connection with open requests after which a ping is sent.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The longest wait for the answer to that ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// The windows in which a server may send: of the connection, and of each stream. The connection's
/// window is the most that weir may have to hold of unread responses, so its size depends on the
/// free memory.
const CONNECTION_WINDOW: u32 = 4 << 20;
const STREAM_WINDOW: u32 = 256 << 10;
/// The smallest window of a connection (RFC 9113, 6.9.2).
const MIN_WINDOW: u32 = 65_535;

/// The text of HTTP/2's REFUSED_STREAM at the end of hyper's chain of causes, which does not show
/// the code itself. If the text changed, such a request would count as perhaps executed: the safe
/// side.
const REFUSED_STREAM: &str =
    "stream error received: refused stream before processing any application logic";

/// A handle of the connection. The connection ends with the last handle.
#[derive(Clone, Debug)]
pub(super) struct Http2Connection {
    sender: http2::SendRequest<Full<Bytes>>,
    /// Set once the connection takes no more requests. It ends with those that it has.
    retired: RetiredMark,
}

/// The retirement mark of one connection: it takes no more requests.
#[derive(Clone, Debug, Default)]
pub(super) struct RetiredMark(Arc<AtomicBool>);

impl RetiredMark {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// True if both are the mark of the same connection.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Http2Connection {
    pub(super) async fn open(
        stream: ByteStream,
        descriptor: DescriptorPermit,
        windows: &ByteBudget,
    ) -> Result<Self, UpstreamHttpError> {
        let share = windows.reserve_share((CONNECTION_WINDOW - MIN_WINDOW) as usize);
        let window =
            u32::try_from(share.bytes()).map_or(CONNECTION_WINDOW, |more| MIN_WINDOW + more);
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW.min(window))
            .initial_connection_window_size(window)
            .handshake(TokioIo::new(BoundedConnection::frames(stream)))
            .await;
        let (sender, connection) =
            made.map_err(|error| UpstreamHttpError::Connect(error.into()))?;
        // The connection's error goes to the requests on it.
        tokio::spawn(async move {
            let _held = (descriptor, share);
            drop(connection.await);
        });
        Ok(Self {
            sender,
            retired: RetiredMark::default(),
        })
    }

    /// True while the connection takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed() && !self.retired.is_set()
    }

    /// True for the connection of this mark.
    pub(super) fn has_mark(&self, retired: &RetiredMark) -> bool {
        self.retired.is_same(retired)
    }

    /// Returns the connection's mark.
    pub(super) fn retired(&self) -> RetiredMark {
        self.retired.clone()
    }

    pub(super) async fn send_request(
        mut self,
        ask: OutgoingRequest<'_>,
    ) -> Result<Response<Incoming>, UpstreamHttpError> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.to.http2_uri().clone();
        *request.version_mut() = Version::HTTP_2;
        for (name, value) in ask.fields() {
            request.headers_mut().append(name, value.clone());
        }
        let sent = match self.sender.ready().await {
            Ok(()) if self.retired.is_set() => {
                return Err(UpstreamHttpError::NotSent(std::io::Error::other(
                    "the connection takes no more requests",
                )));
            }
            Ok(()) => self.sender.try_send_request(request).await,
            Err(error) => return Err(UpstreamHttpError::NotSent(std::io::Error::other(error))),
        };
        match sent {
            Ok(answer) => Ok(answer),
            // hyper returns a request only if no byte of it was written.
            Err(mut error) => Err(match error.take_message() {
                Some(_) => UpstreamHttpError::NotSent(std::io::Error::other(error.into_error())),
                None => broken(error.into_error()),
            }),
        }
    }
}

fn broken(error: hyper::Error) -> UpstreamHttpError {
    let mut last = error.source();
    while let Some(inner) = last.and_then(std::error::Error::source) {
        last = Some(inner);
    }
    if last.is_some_and(|cause| cause.to_string() == REFUSED_STREAM) {
        UpstreamHttpError::Unread(error)
    } else {
        UpstreamHttpError::Stream(error)
    }
}
