//! An HTTP/2 connection: many requests at once.

use std::future::{Future as _, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong};
use http::{HeaderName, HeaderValue, Method, Request, Response, Version, header};
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout};
use weir_core::budget::{ByteBudget, DescriptorPermit};

use crate::byte_stream::ByteStream;
use crate::http_error::UpstreamHttpError;
use weir_http1::OutgoingRequest;
use weir_http2_client::{
    ClientConnection, Http2Response, OpenResponses, ReceiveWindow, STREAM_WINDOW, is_unprocessed,
};

/// The silence on a connection with open requests after which a ping is sent.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The longest wait for the answer to that ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// The window of the connection at first, and the most that it grows to: the windows of all streams.
const CONNECTION_WINDOW: u32 = 4 << 20;
const MAX_CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;
/// The streams that a server is taken to allow until its settings arrive: as few as RFC 9113,
/// 6.5.2 recommends to allow.
pub(super) const ASSUMED_MAX_STREAMS: usize = 100;
/// The most bytes of a response's head.
const MAX_HEAD_BYTES: u32 = 16 << 10;
/// Streams of cancelled requests whose frames may still arrive, and the time in which they may.
const RESET_STREAMS: usize = 1_000;
const RESET_TIME: Duration = Duration::from_secs(30);

/// The header fields of HTTP/1.1 connections, which a request over HTTP/2 must not have (RFC 9113,
/// 8.2.2).
const CONNECTION_FIELDS: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A handle of the connection. The connection ends with the last handle and request.
#[derive(Clone, Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    use_state: Arc<ConnectionUse>,
}

/// The use of a connection, shared by its handles, its requests and their responses.
#[derive(Debug)]
struct ConnectionUse {
    /// Set once the connection takes no more requests. It ends with those that it has.
    is_retired: AtomicBool,
    /// The slots that are taken.
    streams: AtomicUsize,
    /// The streams that the server allows. A request that has none waits, so that it is known as
    /// not sent if the connection ends. Closed with the connection.
    turns: Arc<Semaphore>,
    responses: Arc<OpenResponses>,
    /// Streams need the connection after its last handle is gone.
    _descriptor: DescriptorPermit,
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
        let window = ReceiveWindow::reserve(windows, CONNECTION_WINDOW, MAX_CONNECTION_WINDOW);
        let mut builder = Builder::new();
        builder
            .initial_max_send_streams(max_streams)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_concurrent_reset_streams(RESET_STREAMS)
            .reset_stream_duration(RESET_TIME);
        let begun = ClientConnection::begin(stream, &mut builder, window).await;
        let (sender, mut connection) =
            begun.map_err(|error| UpstreamHttpError::Connect(error.into()))?;
        let pings = connection.ping_pong();
        let use_state = Arc::new(ConnectionUse {
            is_retired: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(max_streams)),
            responses: connection.responses(),
            _descriptor: descriptor,
        });
        let driving = RetireAtEnd(use_state.clone());
        // The connection's error goes to the requests on it.
        tokio::spawn(async move {
            tokio::select! {
                () = drive(connection, &driving.0, max_streams) => {}
                () = watch_silence(pings, &driving.0) => {}
            }
        });
        Ok(Self { sender, use_state })
    }

    /// True while the connection takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.is_retired() && !self.use_state.responses.is_worn()
    }

    fn is_retired(&self) -> bool {
        self.use_state.is_retired.load(Ordering::Acquire)
    }

    /// Returns the number of slots that are taken.
    pub(super) fn streams(&self) -> usize {
        self.use_state.streams.load(Ordering::Relaxed)
    }

    /// Returns the most streams that the server allows at once (RFC 9113, 5.1.2).
    pub(super) fn max_streams(&self) -> usize {
        self.sender.current_max_send_streams()
    }

    /// True if the server allows one more stream, and slow readers leave it a window.
    pub(super) fn has_free_stream(&self) -> bool {
        self.streams() < self.max_streams() && !self.is_crowded()
    }

    /// True if slow readers hold much of the connection's window.
    pub(super) fn is_crowded(&self) -> bool {
        self.use_state.responses.is_crowded()
    }

    /// Takes the slot of one more request.
    pub(super) fn take_slot(&self) -> StreamSlot {
        self.use_state.streams.fetch_add(1, Ordering::Relaxed);
        StreamSlot(self.use_state.clone())
    }

    /// Sends a request, for which the caller has a slot. Beyond the streams that the server allows
    /// it waits until one ends.
    pub(super) async fn send_request(
        self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<Response<Http2Response>, UpstreamHttpError> {
        let turn = self.use_state.turns.clone().acquire_owned().await;
        let turn = turn.map_err(not_sent)?;
        let mut sender = self.sender.ready().await.map_err(not_sent)?;
        if self.use_state.is_retired.load(Ordering::Acquire) {
            return Err(not_sent("the connection takes no more requests"));
        }
        let (response, mut body) = sender
            .send_request(request_head(outgoing), outgoing.body.is_empty())
            .map_err(not_sent)?;
        let mut response = self.use_state.responses.add(response, Some(turn));
        drop(sender);
        if !outgoing.body.is_empty() {
            // The library keeps the bytes until the server has room for them. The response reports
            // a failure.
            let _ = body.send_data(outgoing.body.clone(), true);
        }
        drop(body);
        let head = response.head().await.map_err(failure_of)?;
        Ok(Response::from_parts(head, response))
    }
}

fn request_head(outgoing: OutgoingRequest<'_>) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = outgoing.to.http2_uri().clone();
    *request.version_mut() = Version::HTTP_2;
    let fields = request.headers_mut();
    for (name, value) in outgoing.fields() {
        if !CONNECTION_FIELDS.contains(name) {
            fields.append(name, value.clone());
        }
    }
    let has_content = !outgoing.body.is_empty() || *outgoing.method == Method::POST;
    if has_content && !fields.contains_key(header::CONTENT_LENGTH) {
        fields.insert(
            header::CONTENT_LENGTH,
            HeaderValue::from(outgoing.body.len()),
        );
    }
    request
}

fn not_sent(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> UpstreamHttpError {
    UpstreamHttpError::NotSent(std::io::Error::other(cause))
}

fn failure_of(error: h2::Error) -> UpstreamHttpError {
    if is_unprocessed(&error) {
        UpstreamHttpError::Unread(error)
    } else {
        UpstreamHttpError::Stream(error)
    }
}

/// Drives the connection to its end. It begins with `turns` streams that the server is taken to
/// allow.
async fn drive(
    mut connection: ClientConnection<ByteStream>,
    use_state: &ConnectionUse,
    mut turns: usize,
) {
    poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        let allowed = connection.max_concurrent_send_streams();
        let allowed = allowed.min(Semaphore::MAX_PERMITS);
        if allowed > turns {
            use_state.turns.add_permits(allowed - turns);
            turns = allowed;
        } else if allowed < turns {
            // Those in use go when they are free again.
            turns -= use_state.turns.forget_permits(turns - allowed);
        }
        polled.map(drop)
    })
    .await;
}

/// Ends when a server with open requests was silent, and did not answer a ping.
async fn watch_silence(pings: Option<PingPong>, use_state: &ConnectionUse) {
    let Some(mut pings) = pings else {
        return pending().await;
    };
    let mut since = use_state.responses.last_read();
    loop {
        sleep_until(since + PING_AFTER).await;
        let read = use_state.responses.last_read();
        if read > since {
            since = read;
            continue;
        }
        since += PING_AFTER;
        if use_state.streams.load(Ordering::Relaxed) == 0 {
            continue;
        }
        match timeout(PONG_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection reports its own end.
            Ok(Err(_)) => return pending().await,
            Err(_) => return,
        }
    }
}

/// Retires the connection when its task ends. Requests that wait are not sent.
struct RetireAtEnd(Arc<ConnectionUse>);

impl Drop for RetireAtEnd {
    fn drop(&mut self) {
        self.0.is_retired.store(true, Ordering::Release);
        self.0.turns.close();
    }
}
