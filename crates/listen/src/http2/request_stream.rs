//! One stream of an HTTP/2 connection: a request, and its answer in parts that fit the window.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep_until};
use weir_core::budget::{BudgetOwner, ByteBudget};
use weir_core::network::SenderNetwork;

use crate::connection_counts::count_reset_stream;
use crate::http2::flow_control::{CountedChunk, Http2Flow, StreamWindow, WaitingBytes};
use crate::request_body::Expectation;
use crate::request_service::{IncomingRequest, RequestService, ServedBody};

/// The capacity requested from a stream's window at once: one frame.
const FRAME_BYTES: usize = 16 << 10;

/// The reason that an answer is not sent to its end.
enum SendFailure {
    /// The client reset the stream, or the connection is gone.
    Gone,
    /// The stream is reset, for this reason.
    Reset(Reason),
}

/// The limits on the speed at which a stream's answer is sent.
pub(super) struct StreamPace {
    /// The window of the stream.
    pub(super) window: StreamWindow,
    /// The flow control of its connection.
    pub(super) flow: Arc<Http2Flow>,
    /// The longest time without progress.
    pub(super) stall_time: Duration,
}

/// Answers a request; true if the answer was sent to its end.
pub(super) async fn serve_stream<R: RequestService>(
    incoming: IncomingRequest,
    mut respond: SendResponse<CountedChunk>,
    service: Arc<R>,
    messages: ByteBudget,
    StreamPace {
        window,
        flow,
        stall_time,
    }: StreamPace,
) -> bool {
    // The principal is not known yet.
    let owner = BudgetOwner::Network(SenderNetwork::of(incoming.peer.address));
    // The answer to HEAD is that to GET without its content (RFC 9110, section 9.3.2).
    let is_head = *incoming.request.method() == Method::HEAD;
    let expectation = incoming.request.body().expectation();
    let answering = async {
        // A client that does not read its answers gets no further ones.
        flow.wait_for_room().await;
        service.serve(incoming).await
    };
    let answered = unless_reset(pin!(answering), &mut respond, expectation).await;
    let Some(Ok(answer)) = answered else {
        return false;
    };
    let (head, body) = http2_head(answer);
    let ends = is_head || body.is_end_stream();
    // A whole body is in memory, and counts before any of it can be sent.
    let whole = body
        .size_hint()
        .exact()
        .filter(|_| !ends)
        .and_then(|bytes| usize::try_from(bytes).ok());
    let share = match whole {
        None => None,
        Some(bytes) => {
            let request = ByteCountRequest {
                flow: &flow,
                stall_time,
                until: body.until(),
            };
            match request
                .wait_for_whole(bytes, &messages, owner, |cx| {
                    respond.poll_reset(cx).map(drop)
                })
                .await
            {
                Ok(share) => Some(share),
                Err(SendFailure::Gone) => return false,
                Err(SendFailure::Reset(reason)) => {
                    respond.send_reset(reason);
                    return false;
                }
            }
        }
    };
    let Ok(stream) = respond.send_response(head, ends) else {
        respond.send_reset(Reason::INTERNAL_ERROR);
        return false;
    };
    if ends {
        return true;
    }
    let mut sending = AnswerSender {
        stream,
        window,
        flow,
        stall_time,
        until: body.until(),
    };
    match sending.send_body(body, share).await {
        Ok(()) => true,
        Err(SendFailure::Gone) => false,
        Err(SendFailure::Reset(reason)) => {
            sending.stream.send_reset(reason);
            false
        }
    }
}

/// The outcome, unless the client resets the stream first. An expectation is met when the service
/// waits for the body.
async fn unless_reset<T>(
    mut answering: Pin<&mut impl Future<Output = T>>,
    respond: &mut SendResponse<CountedChunk>,
    expectation: Option<Expectation>,
) -> Option<T> {
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answering.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        if expectation.as_ref().is_some_and(Expectation::is_due) {
            let mut head = Response::new(());
            *head.status_mut() = StatusCode::CONTINUE;
            // It fails only if the stream is gone, which the next line reports.
            let _ = respond.send_informational(head);
        }
        respond.poll_reset(cx).map(|_| None)
    })
    .await
}

/// The head in its HTTP/2 form, and the body.
fn http2_head<B: ServedBody>(answer: Response<B>) -> (Response<()>, B) {
    let (mut parts, body) = answer.into_parts();
    // `Connection` belongs to HTTP/1.1: in HTTP/2 the end of the stream replaces it.
    parts.headers.remove(header::CONNECTION);
    parts
        .headers
        .entry(header::DATE)
        .or_insert_with(date_header);
    if let (false, Some(bytes)) = (body.is_end_stream(), body.size_hint().exact()) {
        parts
            .headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(bytes));
    }
    (Response::from_parts(parts, ()), body)
}

/// The `Date` header, computed once a second.
fn date_header() -> HeaderValue {
    thread_local! {
        static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
    }
    let now = SystemTime::now();
    let second = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|last| match last {
        Some((of, value)) if *of == second => value.clone(),
        _ => {
            let text = httpdate::fmt_http_date(now);
            let value =
                HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
            last.insert((second, value)).1.clone()
        }
    })
}

/// A request for the permits of an answer's bytes on its connection. A client that reads gets one
/// answer after the other; if a client does not read, its answers without a permit are reset.
struct ByteCountRequest<'a> {
    flow: &'a Arc<Http2Flow>,
    stall_time: Duration,
    until: Option<Instant>,
}

impl ByteCountRequest<'_> {
    /// Waits for the permits of a whole answer, which is in memory already: while it waits it takes
    /// from the memory of all messages.
    async fn wait_for_whole(
        self,
        bytes: usize,
        memory: &ByteBudget,
        owner: BudgetOwner,
        gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<Arc<WaitingBytes>, SendFailure> {
        if let Some(share) = self.flow.try_count(bytes) {
            return Ok(share);
        }
        let Some(_held) = memory.try_reserve_of(owner, bytes) else {
            count_reset_stream("waiting");
            return Err(SendFailure::Reset(Reason::ENHANCE_YOUR_CALM));
        };
        Box::pin(self.wait(bytes, gone)).await
    }

    /// Waits for the permits of a part of an answer.
    async fn wait_for_part(
        self,
        bytes: usize,
        gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<Arc<WaitingBytes>, SendFailure> {
        match self.flow.try_count(bytes) {
            Some(share) => Ok(share),
            None => Box::pin(self.wait(bytes, gone)).await,
        }
    }

    async fn wait(
        self,
        bytes: usize,
        mut gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<Arc<WaitingBytes>, SendFailure> {
        let due = || {
            let stalled = Instant::now() + self.stall_time;
            self.until.map_or(stalled, |until| stalled.min(until))
        };
        let mut turn = pin!(self.flow.clone().count_in_turn(bytes));
        let (mut stalled, mut answered) = (pin!(sleep_until(due())), self.flow.answered());
        poll_fn(|cx| {
            if gone(cx).is_ready() {
                return Poll::Ready(Err(SendFailure::Gone));
            }
            if let Poll::Ready(share) = turn.as_mut().poll(cx) {
                return Poll::Ready(share.ok_or(SendFailure::Gone));
            }
            while stalled.as_mut().poll(cx).is_ready() {
                if self.until.is_some_and(|until| until <= Instant::now()) {
                    count_reset_stream("deadline");
                    return Poll::Ready(Err(SendFailure::Reset(Reason::CANCEL)));
                }
                let now = self.flow.answered();
                if std::mem::replace(&mut answered, now) == now {
                    count_reset_stream("window");
                    return Poll::Ready(Err(SendFailure::Reset(Reason::CANCEL)));
                }
                stalled.as_mut().reset(due());
            }
            Poll::Pending
        })
        .await
    }
}

/// An answer in transmission.
struct AnswerSender {
    stream: SendStream<CountedChunk>,
    window: StreamWindow,
    flow: Arc<Http2Flow>,
    stall_time: Duration,
    /// The latest end of the call, independent of the client's reading speed.
    until: Option<Instant>,
}

impl AnswerSender {
    /// Sends a body to its end. `whole` counts a body that is in memory already.
    async fn send_body<B>(
        &mut self,
        mut body: B,
        mut whole: Option<Arc<WaitingBytes>>,
    ) -> Result<(), SendFailure>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        loop {
            let frame = match self.next_frame(&mut body, whole.is_some()).await? {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Err(SendFailure::Reset(Reason::INTERNAL_ERROR)),
                None => {
                    return self
                        .stream
                        .send_data(CountedChunk::empty(), true)
                        .map_err(|_| SendFailure::Gone);
                }
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let share = match whole.take() {
                Some(share) => share,
                None => self.count_part(data.len()).await?,
            };
            let ends = body.is_end_stream();
            self.send_parts(data, &share, ends).await?;
            if ends {
                return Ok(());
            }
        }
    }

    /// The next frame of a body, once there is room for it.
    async fn next_frame<B>(
        &mut self,
        body: &mut B,
        is_held: bool,
    ) -> Result<Option<Result<http_body::Frame<Bytes>, B::Error>>, SendFailure>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let flow = self.flow.clone();
        let mut next = pin!(async {
            // Bytes that are counted already do not wait for room.
            if is_held {
                body.frame().await
            } else {
                flow.while_room(body.frame()).await
            }
        });
        poll_fn(|cx| {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(SendFailure::Gone));
            }
            next.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Waits for the permits of a part of the answer.
    async fn count_part(&mut self, bytes: usize) -> Result<Arc<WaitingBytes>, SendFailure> {
        let request = ByteCountRequest {
            flow: &self.flow,
            stall_time: self.stall_time,
            until: self.until,
        };
        let stream = &mut self.stream;
        request
            .wait_for_part(bytes, |cx| stream.poll_reset(cx).map(drop))
            .await
    }

    async fn send_parts(
        &mut self,
        mut data: Bytes,
        share: &Arc<WaitingBytes>,
        ends: bool,
    ) -> Result<(), SendFailure> {
        while !data.is_empty() {
            self.stream.reserve_capacity(data.len().min(FRAME_BYTES));
            let room = self.wait_for_capacity().await?;
            let part = data.split_to(room.min(data.len()));
            self.window.sent(part.len());
            let piece = CountedChunk::new(part, share.clone());
            self.stream
                .send_data(piece, ends && data.is_empty())
                .map_err(|_| SendFailure::Gone)?;
        }
        Ok(())
    }

    /// The bytes that may be sent now. A stream with its own window used up for too long is reset;
    /// if the connection's window is used up, the connection's task handles it.
    async fn wait_for_capacity(&mut self) -> Result<usize, SendFailure> {
        let (stream, stall_time, until) = (&mut self.stream, self.stall_time, self.until);
        let due = move || {
            let stalled = Instant::now() + stall_time;
            until.map_or(stalled, |until| stalled.min(until))
        };
        let mut stalled = None;
        loop {
            let waited = poll_fn(|cx| {
                if stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(Err(SendFailure::Gone));
                }
                while stream.capacity() == 0 {
                    match stream.poll_capacity(cx) {
                        Poll::Ready(Some(Ok(_))) => {}
                        Poll::Ready(Some(Err(_)) | None) => {
                            return Poll::Ready(Err(SendFailure::Gone));
                        }
                        Poll::Pending => {
                            let stalled =
                                stalled.get_or_insert_with(|| Box::pin(sleep_until(due())));
                            return stalled.as_mut().poll(cx).map(|()| Ok(None));
                        }
                    }
                }
                Poll::Ready(Ok(Some(stream.capacity())))
            });
            match waited.await? {
                Some(capacity) => return Ok(capacity),
                None if until.is_some_and(|until| until <= Instant::now()) => {
                    count_reset_stream("deadline");
                    return Err(SendFailure::Reset(Reason::CANCEL));
                }
                None if self.window.is_exhausted() => {
                    count_reset_stream("window");
                    return Err(SendFailure::Reset(Reason::CANCEL));
                }
                None => {
                    if let Some(stalled) = &mut stalled {
                        stalled.as_mut().reset(due());
                    }
                }
            }
        }
    }
}
