//! An HTTP/2 connection: many requests at once.
//!
//! By the `h2` crate, not by hyper's client: it reports each failure with its code, so that a
//! request that the server did not process is known as such, and it has a setting for small frames.

use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason};
use http::{HeaderName, HeaderValue, Method, Request, Response, Version, header};
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout};
use weir_core::budget::{ByteBudget, ByteReservation, DescriptorPermit};

use super::bounded_connection::BoundedConnection;
use super::byte_stream::ByteStream;
use super::http_error::UpstreamHttpError;
use super::http2_inbound::{InboundTraffic, SMALL_FRAMES_BUDGET};
use super::http2_response::{Http2Response, OpenResponses};
use weir_http1::OutgoingRequest;

/// The silence on a connection with open requests after which a ping is sent.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The longest wait for the answer to that ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// The windows in which a server may send: of the connection, and of each stream. The connection's
/// window is the most that weir may have to hold of unread responses, so its size depends on the
/// free memory. It grows while slow readers hold much of it, up to the windows of all streams, so
/// that they do not stop the other requests.
const CONNECTION_WINDOW: u32 = 4 << 20;
const STREAM_WINDOW: u32 = 256 << 10;
const MAX_CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;
/// The streams that a server is taken to allow until its settings arrive: as few as RFC 9113,
/// 6.5.2 recommends to allow.
pub(super) const ASSUMED_MAX_STREAMS: usize = 100;
/// The smallest window of a connection (RFC 9113, 6.9.2).
const MIN_WINDOW: u32 = 65_535;
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

type DrivenConnection = Connection<BoundedConnection<ByteStream>, Bytes>;

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
    traffic: Arc<InboundTraffic>,
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
        let traffic = Arc::new(InboundTraffic::new(window));
        let made = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(max_streams)
            .initial_window_size(STREAM_WINDOW.min(window))
            .initial_connection_window_size(window)
            .max_header_list_size(MAX_HEAD_BYTES)
            .data_frame_budget(SMALL_FRAMES_BUDGET)
            // Late responses to cancelled requests are no error of the server.
            .max_concurrent_reset_streams(RESET_STREAMS)
            .reset_stream_duration(RESET_TIME)
            .max_local_error_reset_streams(None)
            .handshake(BoundedConnection::gathered_frames(stream, traffic.clone()))
            .await;
        let (sender, mut connection) =
            made.map_err(|error| UpstreamHttpError::Connect(error.into()))?;
        let pings = connection.ping_pong();
        let use_state = Arc::new(ConnectionUse {
            is_retired: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(max_streams)),
            responses: Arc::new(OpenResponses::new(traffic.clone())),
            traffic,
            _held: (descriptor, share),
        });
        let window = ReceiveWindow {
            size: window,
            budget: windows.clone(),
            held: Vec::new(),
        };
        let driving = RetireAtEnd(use_state.clone());
        // The connection's error goes to the requests on it.
        tokio::spawn(async move {
            tokio::select! {
                () = drive(connection, &driving.0, max_streams, window) => {}
                () = watch_silence(pings, &driving.0) => {}
            }
        });
        Ok(Self { sender, use_state })
    }

    /// True while the connection takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.is_retired() && !self.use_state.traffic.is_worn()
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
        self.use_state.traffic.is_crowded()
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
        ask: OutgoingRequest<'_>,
    ) -> Result<Response<Http2Response>, UpstreamHttpError> {
        let turn = self.use_state.turns.clone().acquire_owned().await;
        let turn = turn.map_err(not_sent)?;
        let mut sender = self.sender.ready().await.map_err(not_sent)?;
        if self.use_state.is_retired.load(Ordering::Acquire) {
            return Err(not_sent("the connection takes no more requests"));
        }
        let (response, mut body) = sender
            .send_request(request_head(ask), ask.body.is_empty())
            .map_err(not_sent)?;
        let mut response = self.use_state.responses.add(response, turn);
        drop(sender);
        if !ask.body.is_empty() {
            // The library keeps the bytes until the server has room for them. The response reports
            // a failure.
            let _ = body.send_data(ask.body.clone(), true);
        }
        drop(body);
        let head = response.head().await.map_err(failure_of)?;
        Ok(Response::from_parts(head, response))
    }
}

fn request_head(ask: OutgoingRequest<'_>) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = ask.method.clone();
    *request.uri_mut() = ask.to.http2_uri().clone();
    *request.version_mut() = Version::HTTP_2;
    let fields = request.headers_mut();
    for (name, value) in ask.fields() {
        if !CONNECTION_FIELDS.contains(name) {
            fields.append(name, value.clone());
        }
    }
    let has_content = !ask.body.is_empty() || *ask.method == Method::POST;
    if has_content && !fields.contains_key(header::CONTENT_LENGTH) {
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(ask.body.len()));
    }
    request
}

fn not_sent(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> UpstreamHttpError {
    UpstreamHttpError::NotSent(std::io::Error::other(cause))
}

/// The proofs that the server did not process a request are REFUSED_STREAM, and a GOAWAY below its
/// stream (RFC 9113, 8.7). `h2` fails a stream with a GOAWAY of the server only then.
fn failure_of(error: h2::Error) -> UpstreamHttpError {
    let is_unread = error.is_remote()
        && (error.is_go_away()
            || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM));
    if is_unread {
        UpstreamHttpError::Unread(error)
    } else {
        UpstreamHttpError::Stream(error)
    }
}

/// Drives the connection to its end. It begins with `turns` streams that the server is taken to
/// allow.
async fn drive(
    connection: DrivenConnection,
    use_state: &ConnectionUse,
    mut turns: usize,
    mut window: ReceiveWindow,
) {
    let mut connection = pin!(connection);
    poll_fn(|cx| {
        let polled = connection.as_mut().poll(cx);
        if use_state.traffic.is_to_gather() {
            use_state.responses.gather();
            use_state.traffic.gathered();
        }
        if use_state.traffic.is_crowded()
            && let Some(size) = window.grow()
        {
            connection.set_target_window_size(size);
            use_state.traffic.set_window(size);
        }
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

/// The window of a connection.
struct ReceiveWindow {
    size: u32,
    budget: ByteBudget,
    /// The shares of the budget beyond that of the connection's beginning. A server may use its
    /// window until the connection ends.
    held: Vec<ByteReservation>,
}

impl ReceiveWindow {
    /// Makes the window larger, and returns its new size. Absent if it is as large as it may be, or
    /// if memory does not allow the whole step.
    fn grow(&mut self) -> Option<u32> {
        let step = CONNECTION_WINDOW.min(MAX_CONNECTION_WINDOW - self.size);
        if step == 0 {
            return None;
        }
        let more = self.budget.reserve_share(step as usize);
        if more.bytes() < step as usize {
            return None;
        }
        self.held.push(more);
        self.size += step;
        Some(self.size)
    }
}

/// Ends when a server with open requests was silent, and did not answer a ping.
async fn watch_silence(pings: Option<PingPong>, use_state: &ConnectionUse) {
    let Some(mut pings) = pings else {
        return pending().await;
    };
    let mut since = use_state.traffic.last_read();
    loop {
        sleep_until(since + PING_AFTER).await;
        let read = use_state.traffic.last_read();
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
