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
use http::{HeaderValue, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep_until};
use weir_core::budget::{BudgetOwner, ByteBudget};

use super::super::reset;
use super::flow::{Flow, Piece, Share, StreamWindow};
use crate::observe::{Followed, Served};
use crate::stack::{Arrival, Stack};

/// The capacity requested from a stream's window at once: one frame.
const PART: usize = 16 << 10;

/// The reason that an answer is not sent to its end.
enum Unsent {
    /// The client reset the stream, or the connection is gone.
    Gone,
    /// The stream is reset, for this reason.
    Reset(Reason),
}

/// Answers a request.
pub(super) async fn serve(
    arrival: Box<Arrival>,
    mut respond: SendResponse<Piece>,
    (stack, flow, window): (Arc<Stack>, Arc<Flow>, StreamWindow),
    stall_time: Duration,
) {
    let (messages, owner) = (stack.messages().clone(), arrival.network());
    let answering = async {
        // A client that does not read its answers gets no further ones.
        flow.room().await;
        stack.serve(arrival).await
    };
    let Some(Ok(answer)) = unless_reset(pin!(answering), &mut respond).await else {
        return;
    };
    let (head, body) = head_of(answer);
    let ends = body.is_end_stream();
    // A whole body is in memory, and counts before any of it can be sent.
    let whole = body
        .size_hint()
        .exact()
        .and_then(|bytes| usize::try_from(bytes).ok());
    let share = match whole {
        None => None,
        Some(bytes) => {
            let place = Place {
                flow: &flow,
                stall_time,
                until: body.until(),
            };
            match place
                .of_whole(bytes, (&messages, owner), |cx| {
                    respond.poll_reset(cx).map(drop)
                })
                .await
            {
                Ok(share) => Some(share),
                Err(Unsent::Gone) => return,
                Err(Unsent::Reset(reason)) => return respond.send_reset(reason),
            }
        }
    };
    let Ok(stream) = respond.send_response(head, ends) else {
        return respond.send_reset(Reason::INTERNAL_ERROR);
    };
    if ends {
        return;
    }
    let mut sending = Sending {
        stream,
        window,
        flow,
        stall_time,
        until: body.until(),
    };
    if let Err(Unsent::Reset(reason)) = sending.all(body, share).await {
        sending.stream.send_reset(reason);
    }
}

/// The outcome, unless the client resets the stream first.
async fn unless_reset<T>(
    mut answering: Pin<&mut impl Future<Output = T>>,
    respond: &mut SendResponse<Piece>,
) -> Option<T> {
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answering.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        respond.poll_reset(cx).map(|_| None)
    })
    .await
}

/// The head in its HTTP/2 form, and the body.
fn head_of(answer: Served) -> (Response<()>, Followed) {
    let (mut parts, body) = answer.into_parts();
    // `Connection` belongs to HTTP/1.1: in HTTP/2 the end of the stream replaces it.
    parts.headers.remove(header::CONNECTION);
    parts.headers.entry(header::DATE).or_insert_with(date);
    if let (false, Some(bytes)) = (body.is_end_stream(), body.size_hint().exact()) {
        parts
            .headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(bytes));
    }
    (Response::from_parts(parts, ()), body)
}

/// The `Date` header, computed once a second.
fn date() -> HeaderValue {
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
struct Place<'a> {
    flow: &'a Arc<Flow>,
    stall_time: Duration,
    until: Option<Instant>,
}

impl Place<'_> {
    /// Waits for the permits of a whole answer, which is in memory already: while it waits it takes
    /// from the memory of all messages.
    async fn of_whole(
        self,
        bytes: usize,
        (memory, owner): (&ByteBudget, BudgetOwner),
        gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<Arc<Share>, Unsent> {
        if let Some(share) = self.flow.hold(bytes) {
            return Ok(share);
        }
        let Some(_held) = memory.try_reserve_of(owner, bytes) else {
            reset("waiting");
            return Err(Unsent::Reset(Reason::ENHANCE_YOUR_CALM));
        };
        Box::pin(self.wait(bytes, gone)).await
    }

    /// Waits for the permits of a part of an answer.
    async fn of(
        self,
        bytes: usize,
        gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<Arc<Share>, Unsent> {
        match self.flow.hold(bytes) {
            Some(share) => Ok(share),
            None => Box::pin(self.wait(bytes, gone)).await,
        }
    }

    async fn wait(
        self,
        bytes: usize,
        mut gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<Arc<Share>, Unsent> {
        let due = || {
            let stalled = Instant::now() + self.stall_time;
            self.until.map_or(stalled, |until| stalled.min(until))
        };
        let mut turn = pin!(self.flow.clone().hold_in_turn(bytes));
        let (mut stalled, mut answered) = (pin!(sleep_until(due())), self.flow.answered());
        poll_fn(|cx| {
            if gone(cx).is_ready() {
                return Poll::Ready(Err(Unsent::Gone));
            }
            if let Poll::Ready(share) = turn.as_mut().poll(cx) {
                return Poll::Ready(share.ok_or(Unsent::Gone));
            }
            while stalled.as_mut().poll(cx).is_ready() {
                if self.until.is_some_and(|until| until <= Instant::now()) {
                    reset("deadline");
                    return Poll::Ready(Err(Unsent::Reset(Reason::CANCEL)));
                }
                let now = self.flow.answered();
                if std::mem::replace(&mut answered, now) == now {
                    reset("window");
                    return Poll::Ready(Err(Unsent::Reset(Reason::CANCEL)));
                }
                stalled.as_mut().reset(due());
            }
            Poll::Pending
        })
        .await
    }
}

/// An answer in transmission.
struct Sending {
    stream: SendStream<Piece>,
    window: StreamWindow,
    flow: Arc<Flow>,
    stall_time: Duration,
    /// The latest end of the call, independent of the client's reading speed.
    until: Option<Instant>,
}

impl Sending {
    /// Sends a body to its end. `whole` counts a body that is in memory already.
    async fn all<B>(&mut self, mut body: B, mut whole: Option<Arc<Share>>) -> Result<(), Unsent>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        loop {
            let frame = match self.next(&mut body, whole.is_some()).await? {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Err(Unsent::Reset(Reason::INTERNAL_ERROR)),
                None => {
                    return self
                        .stream
                        .send_data(Piece::empty(), true)
                        .map_err(|_| Unsent::Gone);
                }
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let share = match whole.take() {
                Some(share) => share,
                None => self.place(data.len()).await?,
            };
            let ends = body.is_end_stream();
            self.parts(data, &share, ends).await?;
            if ends {
                return Ok(());
            }
        }
    }

    /// The next frame of a body, once there is room for it.
    async fn next<B>(
        &mut self,
        body: &mut B,
        is_held: bool,
    ) -> Result<Option<Result<http_body::Frame<Bytes>, B::Error>>, Unsent>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let flow = self.flow.clone();
        let mut next = pin!(async {
            // Bytes that are counted already do not wait for room.
            if is_held {
                body.frame().await
            } else {
                flow.within(body.frame()).await
            }
        });
        poll_fn(|cx| {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Unsent::Gone));
            }
            next.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Waits for the permits of a part of the answer.
    async fn place(&mut self, bytes: usize) -> Result<Arc<Share>, Unsent> {
        let place = Place {
            flow: &self.flow,
            stall_time: self.stall_time,
            until: self.until,
        };
        let stream = &mut self.stream;
        place.of(bytes, |cx| stream.poll_reset(cx).map(drop)).await
    }

    async fn parts(
        &mut self,
        mut data: Bytes,
        share: &Arc<Share>,
        ends: bool,
    ) -> Result<(), Unsent> {
        while !data.is_empty() {
            self.stream.reserve_capacity(data.len().min(PART));
            let room = self.capacity().await?;
            let part = data.split_to(room.min(data.len()));
            self.window.sent(part.len());
            let piece = Piece::new(part, share.clone());
            self.stream
                .send_data(piece, ends && data.is_empty())
                .map_err(|_| Unsent::Gone)?;
        }
        Ok(())
    }

    /// The bytes that may be sent now. A stream with its own window used up for too long is reset;
    /// if the connection's window is used up, the connection's task handles it.
    async fn capacity(&mut self) -> Result<usize, Unsent> {
        let (stream, stall_time, until) = (&mut self.stream, self.stall_time, self.until);
        let due = move || {
            let stalled = Instant::now() + stall_time;
            until.map_or(stalled, |until| stalled.min(until))
        };
        let mut stalled = None;
        loop {
            let waited = poll_fn(|cx| {
                if stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(Err(Unsent::Gone));
                }
                while stream.capacity() == 0 {
                    match stream.poll_capacity(cx) {
                        Poll::Ready(Some(Ok(_))) => {}
                        Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Unsent::Gone)),
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
                    reset("deadline");
                    return Err(Unsent::Reset(Reason::CANCEL));
                }
                None if self.window.is_exhausted() => {
                    reset("window");
                    return Err(Unsent::Reset(Reason::CANCEL));
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
