//! One HTTP/2 connection: its requests are tasks, and it ends when it is old, idle, flooded, or
//! stalled.
//!
//! Our own driver over the `h2` crate, because weir limits the memory that a client can hold. No
//! part of an answer is handed to the library before there is window for it, so a waiting stream
//! can be reset, and waiting bytes are counted.

pub(crate) mod flow_control;
mod frame_watch;
pub(crate) mod http2_shared;
mod request_stream;
mod unread_body;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use weir_core::budget::{ByteBudget, ByteReservation};

use flow_control::{CountedChunk, Http2Flow};
use frame_watch::FrameWatch;
use http2_shared::Http2Shared;
use request_stream::StreamPace;

use crate::client_peer::ClientPeer;
use crate::connection_activity::ConnectionActivity;
use crate::connection_counts::{count_closed, count_reset_stream};
use crate::guarded_stream::DISCARD_TIME;
use crate::listener_settings::ListenerLimits;
use crate::listener_state::{ConnectionResult, ListenerState};
use crate::request_body::{Expectation, RequestBody};
use crate::request_service::{IncomingRequest, RequestService};

/// The window of every connection (RFC 9113, 6.9.2).
const FIRST_WINDOW: u32 = 65_535;

/// The memory of a stream with its request and a head of usual size, beside that of its connection.
const STREAM_BYTES: usize = 16 << 10;
/// The memory of a head that is part of [`STREAM_BYTES`].
const USUAL_HEAD_BYTES: usize = 8 << 10;
/// The memory of a header field beside its bytes: its entry in a map that is half full, and its two
/// allocations.
const FIELD_BYTES: usize = 200;

/// The checks for open streams within the time that a draining connection may stay unused.
const UNUSED_CHECKS: u32 = 5;
/// The least pause between two of these checks.
const MIN_UNUSED_CHECK: Duration = Duration::from_millis(50);

/// Streams that the client may make weir reset by breaking the protocol, over the life of the
/// connection (CVE-2025-8671).
const PROVOKED_RESETS: usize = 256;

/// Serves an HTTP/2 connection to its end.
pub(super) async fn serve<S, R>(
    io: S,
    listening: Arc<ListenerState<R>>,
    limits: &ListenerLimits,
    peer: ClientPeer,
) -> ConnectionResult
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: RequestService,
{
    let budgets = listening.budgets.clone();
    let Some(_first) = budgets.connections.try_reserve(FIRST_WINDOW as usize) else {
        count_closed("memory");
        return Ok(());
    };
    let (window, _more) = connection_window(&budgets.windows, limits.h2.connection_window);
    let (flow, closing) = (Http2Flow::new(&limits.h2), CancellationToken::new());
    let io = FrameWatch::new(io, flow.clone());
    let Ok(handshake) = timeout(
        limits.head_time,
        http2_builder(limits, window).handshake(io),
    )
    .await
    else {
        count_closed("head_timeout");
        return Ok(());
    };
    let peer = ClientPeer {
        http2: Some(Http2Shared {
            flow: flow.clone(),
            closing: closing.clone(),
        }),
        ..peer
    };
    let (activity, drain) = (peer.activity.clone(), listening.drain.clone());
    let mut driver = Http2Driver::new(handshake?, listening, peer, limits);
    let aged = tokio::select! {
        ended = &mut driver => return ended,
        () = drain.cancelled() => false,
        () = old_or_idle(&activity, limits.h2.age, limits.idle_time) => true,
    };
    driver.connection.graceful_shutdown();
    if aged {
        closing.cancel();
    }
    let open_streams = driver.open_streams.clone();
    let unused_in_drain = async {
        drain.cancelled().await;
        unused_for(&open_streams, &flow, limits.drain_idle).await;
    };
    // The library waits without end for a peer that answers no ping.
    tokio::select! {
        ended = &mut driver => return ended,
        () = unused_in_drain => {}
        () = sleep(limits.h2.last_streams), if aged => {
            count_closed("h2_age");
            return Ok(());
        }
    }
    driver.connection.abrupt_shutdown(Reason::NO_ERROR);
    timeout(DISCARD_TIME, driver).await.unwrap_or(Ok(()))
}

/// The window of a connection: the bytes that its client may send before they are read. The
/// protocol fixes its first part; the rest is as large as memory allows.
fn connection_window(windows: &ByteBudget, most: u32) -> (u32, ByteReservation) {
    let share = windows.reserve_share(most.saturating_sub(FIRST_WINDOW) as usize);
    let more = u32::try_from(share.bytes()).unwrap_or(0);
    (most.min(FIRST_WINDOW + more), share)
}

fn http2_builder(all: &ListenerLimits, window: u32) -> Builder {
    let limits = &all.h2;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .initial_window_size(limits.stream_window)
        .initial_connection_window_size(window)
        .max_send_buffer_size(limits.send_buffer)
        .max_header_list_size(u32::try_from(all.head_bytes).unwrap_or(u32::MAX))
        .max_local_error_reset_streams(Some(PROVOKED_RESETS));
    if !limits.is_flood_limited {
        // A replica resets a stream for each client that cancels, also before it is accepted, and
        // frames of both sides cross.
        let streams = limits.streams as usize;
        builder
            .max_pending_accept_reset_streams(streams)
            .max_concurrent_reset_streams(streams)
            .max_local_error_reset_streams(None);
    }
    builder
}

/// Drives a connection: accepts its streams, and watches its window, its floods and its pings.
struct Http2Driver<S, R> {
    connection: Connection<FrameWatch<S>, CountedChunk>,
    listening: Arc<ListenerState<R>>,
    peer: ClientPeer,
    flow: Arc<Http2Flow>,
    /// Ends the streams' tasks when the connection is dropped.
    streams: CancellationToken,
    /// The streams that have a task: also those of other replicas, which are no requests of clients.
    open_streams: Arc<ConnectionActivity>,
    limits: ListenerLimits,
    /// True once the connection got GOAWAY for a flood.
    is_flood_closed: bool,
    /// The time the connection's window was found used up, and the bytes granted by then.
    exhausted: Option<(Instant, u64)>,
    pings: Option<PingPong>,
    /// The time of the last ping, and the bytes moved over the connection by then.
    pinged: Option<(Instant, u64)>,
    next_ping: Instant,
    check_interval: Duration,
    check_timer: Pin<Box<Sleep>>,
}

impl<S, R> Http2Driver<S, R>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: RequestService,
{
    fn new(
        mut connection: Connection<FrameWatch<S>, CountedChunk>,
        listening: Arc<ListenerState<R>>,
        peer: ClientPeer,
        limits: &ListenerLimits,
    ) -> Self {
        let flow = peer
            .http2
            .as_ref()
            .map_or_else(|| Http2Flow::new(&limits.h2), |shared| shared.flow.clone());
        let every = limits.h2.ping_timeout.min(limits.stall_time / 3);
        Self {
            pings: connection.ping_pong(),
            connection,
            listening,
            peer,
            flow,
            streams: CancellationToken::new(),
            open_streams: Arc::default(),
            limits: limits.clone(),
            is_flood_closed: false,
            exhausted: None,
            pinged: None,
            next_ping: Instant::now() + limits.h2.ping,
            check_interval: every,
            check_timer: Box::pin(sleep(every)),
        }
    }

    fn begin_stream(&self, request: Request<RecvStream>, mut respond: SendResponse<CountedChunk>) {
        let budgets = &self.listening.budgets;
        let bytes = STREAM_BYTES + head_bytes(&request).saturating_sub(USUAL_HEAD_BYTES);
        let Some(memory) = budgets.connections.try_reserve(bytes) else {
            count_reset_stream("memory");
            // Unprocessed, so the client may send it again.
            return respond.send_reset(Reason::REFUSED_STREAM);
        };
        let expectation = Expectation::of(request.headers());
        let (head, stream) = request.into_parts();
        let (body, unread) = RequestBody::http2(stream, expectation);
        let pace = StreamPace {
            window: self.flow.open_window(respond.stream_id().as_u32()),
            flow: self.flow.clone(),
            stall_time: self.limits.stall_time,
        };
        let incoming = IncomingRequest {
            request: Request::from_parts(head, body),
            peer: self.peer.clone(),
        };
        let service = self.listening.service();
        let messages = budgets.messages.clone();
        let serving = async move {
            let is_sent =
                request_stream::serve_stream(incoming, respond, service, messages, pace).await;
            unread_body::discard(is_sent, unread).await;
        };
        // On the heap: each of the futures around it reserves room for it once more.
        let serving = Box::pin(serving);
        let open = self.open_streams.begin_request();
        let serving = async move {
            let _held = (memory, open);
            serving.await;
        };
        // A forced end of the connection also ends this task.
        self.listening
            .tasks
            .spawn(self.streams.clone().run_until_cancelled_owned(serving));
    }

    /// Checks the timers. `Ready` with the reason if the connection must be dropped.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        while self.check_timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.is_stalled(now) {
                return Poll::Ready("window_stalled");
            }
            if self.is_dead(now, cx) {
                return Poll::Ready("ping_timeout");
            }
            self.check_timer.as_mut().reset(now + self.check_interval);
        }
        Poll::Pending
    }

    /// True once the connection's own window has been used up for too long while answers waited.
    fn is_stalled(&mut self, now: Instant) -> bool {
        let Some(granted) = self.flow.exhausted_grant() else {
            self.exhausted = None;
            return false;
        };
        match self.exhausted {
            Some((since, before)) if before == granted => {
                now.duration_since(since) >= self.limits.stall_time
            }
            _ => {
                self.exhausted = Some((now, granted));
                false
            }
        }
    }

    /// True if a ping stays unanswered and no bytes move either.
    fn is_dead(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let Some(pings) = &mut self.pings else {
            return false;
        };
        let moved = self.flow.moved_bytes();
        match self.pinged {
            None if now >= self.next_ping => {
                if pings.send_ping(Ping::opaque()).is_ok() {
                    self.pinged = Some((now, moved));
                }
                false
            }
            None => false,
            Some(_) if pings.poll_pong(cx).is_ready() => {
                self.pinged = None;
                self.next_ping = now + self.limits.h2.ping;
                false
            }
            Some((_, before)) if before != moved => {
                self.pinged = Some((now, moved));
                false
            }
            Some((since, _)) => now.duration_since(since) >= self.limits.h2.ping_timeout,
        }
    }
}

impl<S, R> Future for Http2Driver<S, R>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: RequestService,
{
    type Output = ConnectionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionResult> {
        let this = &mut *self;
        loop {
            match this.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => this.begin_stream(request, respond),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending if this.flow.is_flooded() && !this.is_flood_closed => {
                    this.is_flood_closed = true;
                    count_closed("h2_flood");
                    this.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Poll::Pending => break,
            }
        }
        match this.poll_time(cx) {
            Poll::Ready(reason) => {
                count_closed(reason);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S, R> Drop for Http2Driver<S, R> {
    fn drop(&mut self) {
        self.streams.cancel();
    }
}

/// The memory of a request's head. Its texts are held twice while they are decoded, and parts of
/// them later.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query();
    let mut texts = target.map_or(0, |target| target.as_str().len());
    for (name, value) in request.headers() {
        texts += name.as_str().len() + value.len();
    }
    texts * 2 + request.headers().len() * FIELD_BYTES
}

/// Ends when the connection is too old, or has had no request for a whole idle time.
async fn old_or_idle(activity: &ConnectionActivity, age: Duration, idle: Duration) {
    let end = Instant::now() + age;
    let mut served = activity.requests_begun();
    loop {
        let check = Instant::now() + idle;
        sleep_until(check.min(end)).await;
        let quiet = !activity.is_busy() && activity.requests_begun() == served;
        if Instant::now() >= end || quiet {
            return;
        }
        served = activity.requests_begun();
    }
}

/// Ends when no stream has been open for this time, and no byte went over the connection: the last
/// bytes of an answer wait for the client after its stream has ended here.
async fn unused_for(streams: &ConnectionActivity, flow: &Http2Flow, time: Duration) {
    let uses = || (streams.requests_begun(), flow.moved_bytes());
    let (mut last_uses, mut unused_since) = (uses(), None);
    loop {
        let now = Instant::now();
        if streams.is_busy() || uses() != last_uses {
            (last_uses, unused_since) = (uses(), None);
        } else if now.duration_since(*unused_since.get_or_insert(now)) >= time {
            return;
        }
        sleep((time / UNUSED_CHECKS).max(MIN_UNUSED_CHECK)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::H2Limits;

    // Proves A26.
    #[tokio::test(start_paused = true)]
    async fn connection_is_unused_a_whole_time_after_its_last_stream_and_byte() {
        let streams = Arc::new(ConnectionActivity::default());
        let flow = Http2Flow::new(&H2Limits::default());
        let time = Duration::from_secs(5);
        let guard = streams.begin_request();
        let last_streams = async {
            sleep(Duration::from_secs(60)).await;
            drop(guard);
            sleep(Duration::from_secs(3)).await;
            // Begun and ended between two checks.
            drop(streams.begin_request());
            sleep(Duration::from_secs(3)).await;
            // The client takes the end of an answer.
            flow.add_moved(1);
            Instant::now()
        };
        let ((), last) = tokio::join!(unused_for(&streams, &flow, time), last_streams);
        let unused = last.elapsed();
        assert!(unused >= time && unused <= time * 2, "{unused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn h2_goes_when_idle_and_when_old() {
        let activity = Arc::new(ConnectionActivity::default());
        let (age, idle) = (Duration::from_secs(100), Duration::from_secs(30));
        let began = Instant::now();
        old_or_idle(&activity, age, idle).await;
        assert_eq!(began.elapsed(), idle);
        let guard = activity.begin_request();
        let began = Instant::now();
        old_or_idle(&activity, age, idle).await;
        assert_eq!(began.elapsed(), age);
        drop(guard);
    }
}
