//! An HTTP/2 connection: many requests at once, by hyper.

use std::error::Error as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use weir_core::budget::{ByteBudget, ByteReservation, DescriptorPermit};

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
/// The streams that a server is taken to allow until its settings arrive: as few as RFC 9113,
/// 6.5.2 recommends to allow.
pub(super) const ASSUMED_MAX_STREAMS: usize = 100;
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
    /// It knows the server's settings. Its task owns it: hyper learns of the end of a connection by
    /// its drop. Its lock is taken after that of the pool.
    connection: Weak<Mutex<DrivenConnection>>,
    use_state: Arc<ConnectionUse>,
}

type DrivenConnection =
    http2::Connection<TokioIo<BoundedConnection<ByteStream>>, Full<Bytes>, TokioExecutor>;

fn lock(connection: &Mutex<DrivenConnection>) -> MutexGuard<'_, DrivenConnection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The use of a connection, shared by its handles, its requests and their responses.
#[derive(Debug)]
struct ConnectionUse {
    /// Set once the connection takes no more requests. It ends with those that it has.
    is_retired: AtomicBool,
    /// The slots that are taken.
    streams: AtomicUsize,
    /// Its share of the budgets. Streams need the connection after its last handle is gone.
    _held: (DescriptorPermit, ByteReservation),
}

/// The slot of one request among the streams of its connection, from before the request until its
/// response was dropped.
#[derive(Debug)]
pub(super) struct StreamSlot(Arc<ConnectionUse>);

impl StreamSlot {
    /// Retires the connection.
    pub(super) fn retire_connection(&self) {
        self.0.is_retired.store(true, Ordering::Release);
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Connection {
    /// Opens a connection. Until the server's settings arrive, it is taken to allow `max_streams`.
    pub(super) async fn open(
        stream: ByteStream,
        descriptor: DescriptorPermit,
        windows: &ByteBudget,
        max_streams: usize,
    ) -> Result<Self, UpstreamHttpError> {
        let share = windows.reserve_share((CONNECTION_WINDOW - MIN_WINDOW) as usize);
        let window =
            u32::try_from(share.bytes()).map_or(CONNECTION_WINDOW, |more| MIN_WINDOW + more);
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_TIMEOUT)
            .initial_max_send_streams(max_streams)
            .initial_stream_window_size(STREAM_WINDOW.min(window))
            .initial_connection_window_size(window)
            .handshake(TokioIo::new(BoundedConnection::frames(stream)))
            .await;
        let (sender, connection) =
            made.map_err(|error| UpstreamHttpError::Connect(error.into()))?;
        let driven = Arc::new(Mutex::new(connection));
        let connection = Arc::downgrade(&driven);
        let use_state = Arc::new(ConnectionUse {
            is_retired: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            _held: (descriptor, share),
        });
        let held = use_state.clone();
        // The connection's error goes to the requests on it.
        tokio::spawn(async move {
            let _held = held;
            drop(poll_fn(|cx| Pin::new(&mut *lock(&driven)).poll(cx)).await);
        });
        Ok(Self {
            sender,
            connection,
            use_state,
        })
    }

    /// True while the connection takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed() && !self.is_retired()
    }

    fn is_retired(&self) -> bool {
        self.use_state.is_retired.load(Ordering::Acquire)
    }

    /// Returns the number of slots that are taken.
    pub(super) fn streams(&self) -> usize {
        self.use_state.streams.load(Ordering::Relaxed)
    }

    /// Returns the most streams that the server allows at once (RFC 9113, 5.1.2), and 0 after the
    /// end of the connection.
    pub(super) fn max_streams(&self) -> usize {
        let connection = self.connection.upgrade();
        connection.map_or(0, |connection| lock(&connection).current_max_send_streams())
    }

    /// True if the server allows one more stream.
    pub(super) fn has_free_stream(&self) -> bool {
        self.streams() < self.max_streams()
    }

    /// Takes the slot of one more request.
    pub(super) fn take_slot(&self) -> StreamSlot {
        self.use_state.streams.fetch_add(1, Ordering::Relaxed);
        StreamSlot(self.use_state.clone())
    }

    /// Sends a request, for which the caller has a slot. Beyond the streams that the server allows
    /// it waits until one ends.
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
            Ok(()) if self.is_retired() => {
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
