//! The reply to a call: notes, and then exactly one end.
//!
//! A [`Reply`] has one owner. Dropping it cancels the call, down to the upstream socket.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use crate::call_limits::CallLimits;
use crate::failure::Failure;
use crate::port::BoxFuture;
pub use crate::reply_events::{NoteKind, Payload, PayloadSource, ReplyEnd, ReplyEvent, ReplyNote};

/// The source of a reply's events. Dropping it cancels the call.
pub trait ReplySource: Send {
    /// The next event. After [`ReplyEvent::End`] it is not polled again.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent>;
}

/// The answer to a call, as it happens. It ends exactly once.
pub struct Reply {
    state: ReplyState,
    deadline: Option<Instant>,
}

enum ReplyState {
    Ended(ReplyEnd),
    /// Boxed, so that the reply of the usual case is small.
    Live(Box<LiveReply>),
    Over,
}

/// A reply that runs.
struct LiveReply {
    /// An event that was read already, and is delivered first.
    first: Option<ReplyEvent>,
    events: LiveEvents,
    /// Dropped after the events: the permit is freed after the call is cancelled.
    limits: Option<Box<CallLimits>>,
}

enum LiveEvents {
    /// The call has no reply yet.
    Call(BoxFuture<'static, Reply>),
    Source(Box<dyn ReplySource>),
}

impl Reply {
    /// A reply that is already over: the usual case of a small result.
    #[must_use]
    pub fn ended(end: impl Into<ReplyEnd>) -> Self {
        Self::of(ReplyState::Ended(end.into()))
    }

    /// A reply with the events of `source`.
    #[must_use]
    pub fn live(source: impl ReplySource + 'static) -> Self {
        Self::of_events(LiveEvents::Source(Box::new(source)))
    }

    /// The reply of a call that is still being made. Dropping the reply drops the future.
    #[must_use]
    pub fn of_call(call: BoxFuture<'static, Self>) -> Self {
        Self::of_events(LiveEvents::Call(call))
    }

    /// Reads a source up to its first event, which the reply then begins with. Dropping the future
    /// drops the source.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async function has its arguments twice, and a source is large"
    )]
    pub fn started(mut source: impl ReplySource + 'static) -> impl Future<Output = Self> + Send {
        async move {
            match poll_fn(|cx| source.poll_event(cx)).await {
                // A reply that is over needs its source no more.
                ReplyEvent::End(end) => Self::ended(end),
                first @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_)) => {
                    Self::live(source).with_first_event(first)
                }
            }
        }
    }

    fn of(state: ReplyState) -> Self {
        Self {
            state,
            deadline: None,
        }
    }

    fn of_events(events: LiveEvents) -> Self {
        Self::of(ReplyState::Live(Box::new(LiveReply {
            first: None,
            events,
            limits: None,
        })))
    }

    /// Puts an event that was just read from this reply back at its beginning.
    #[must_use]
    pub fn with_first_event(self, first: ReplyEvent) -> Self {
        let state = match (self.state, first) {
            (ReplyState::Live(mut live), first) => {
                live.first = Some(first);
                ReplyState::Live(live)
            }
            (ReplyState::Over, ReplyEvent::End(end)) => ReplyState::Ended(end),
            // The event was not read from this reply: it is dropped.
            (state @ (ReplyState::Ended(_) | ReplyState::Over), _) => state,
        };
        Self { state, ..self }
    }

    /// The same reply within limits, which hold until it ends or is dropped, and then as long as a
    /// result that streams is not dropped. They are not made for a reply that has ended.
    #[must_use]
    pub fn with_limits(self, limits: impl FnOnce() -> CallLimits) -> Self {
        let state = match self.state {
            ReplyState::Ended(ReplyEnd::Complete(Payload::Stream(source))) => {
                ReplyState::Ended(Box::new(limits()).limit_result(source))
            }
            ReplyState::Live(mut live) => {
                debug_assert!(live.limits.is_none(), "a reply has one permit");
                live.limits = Some(Box::new(limits()));
                ReplyState::Live(live)
            }
            state @ (ReplyState::Ended(_) | ReplyState::Over) => state,
        };
        Self { state, ..self }
    }

    /// True if the next event is at hand and is the end.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state, ReplyState::Ended(_))
    }

    /// The end, if it is at hand; else the reply.
    ///
    /// # Errors
    ///
    /// The reply: it runs, or was read to its end.
    pub fn into_end(self) -> Result<ReplyEnd, Self> {
        match self.state {
            ReplyState::Ended(end) => Ok(end),
            state @ (ReplyState::Live(_) | ReplyState::Over) => Err(Self { state, ..self }),
        }
    }

    /// The next event; `None` after the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ReplyEvent>> {
        let event = match &mut self.state {
            ReplyState::Live(live) => ready!(live.poll_event(cx)),
            ReplyState::Ended(_) | ReplyState::Over => {
                let state = std::mem::replace(&mut self.state, ReplyState::Over);
                return Poll::Ready(match state {
                    ReplyState::Ended(end) => Some(ReplyEvent::End(end)),
                    ReplyState::Live(_) | ReplyState::Over => None,
                });
            }
        };
        if matches!(event, ReplyEvent::End(_)) {
            self.state = ReplyState::Over;
        }
        Poll::Ready(Some(event))
    }

    /// The next event; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<ReplyEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same reply, with a deadline for the end of its call.
    #[must_use]
    pub fn with_deadline(self, until: Instant) -> Self {
        Self {
            deadline: Some(until),
            ..self
        }
    }

    /// The deadline of the call, if known: a layer that passes the reply on and is held up may not
    /// keep it longer.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

impl LiveReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let Some(mut limits) = self.limits.take() else {
            return self.poll_source(cx);
        };
        // A client that reads slowly has no more time than others.
        let event = match limits.check_end() {
            Some(failure) => Poll::Ready(ReplyEvent::End(failure.into())),
            None => match self.poll_source(cx) {
                Poll::Ready(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(source)))) => {
                    return Poll::Ready(ReplyEvent::End(limits.limit_result(source)));
                }
                Poll::Ready(event) => {
                    limits.record_event(&event);
                    Poll::Ready(event)
                }
                Poll::Pending => limits
                    .poll_expired(cx)
                    .map(|failure| ReplyEvent::End(failure.into())),
            },
        };
        // The permit is freed after the source, whose drop cancels the call.
        self.limits = Some(limits);
        event
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            if let Some(first) = self.first.take() {
                return Poll::Ready(first);
            }
            let reply = match &mut self.events {
                LiveEvents::Source(source) => return source.poll_event(cx),
                LiveEvents::Call(call) => ready!(call.as_mut().poll(cx)),
            };
            match reply.state {
                ReplyState::Live(live) if live.limits.is_none() => *self = *live,
                state @ (ReplyState::Live(_) | ReplyState::Ended(_) | ReplyState::Over) => {
                    self.events = LiveEvents::Source(Box::new(Reply::of(state)));
                }
            }
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            ReplyState::Ended(end) => f.debug_tuple("Ended").field(end).finish(),
            ReplyState::Live(_) => f.write_str("Live"),
            ReplyState::Over => f.write_str("Over"),
        }
    }
}

/// A reply is a source itself, for layers that pass it on. Polled after its end, it fails.
impl ReplySource for Reply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        self.poll_next(cx).map(|event| {
            event.unwrap_or_else(|| {
                ReplyEvent::End(Failure::internal("a reply ended without an end").into())
            })
        })
    }
}

impl<S> ReplySource for Pin<Box<S>>
where
    S: futures_util::Stream<Item = ReplyEvent> + Send + ?Sized,
{
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        self.as_mut().poll_next(cx).map(|event| {
            event.unwrap_or_else(|| {
                ReplyEvent::End(Failure::internal("a reply's source ended without an end").into())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;

    use super::*;

    struct TwoEventSource(u8);
    impl ReplySource for TwoEventSource {
        fn poll_event(&mut self, _cx: &mut Context<'_>) -> Poll<ReplyEvent> {
            self.0 += 1;
            Poll::Ready(if self.0 == 1 {
                ReplyEvent::Note(ReplyNote {
                    kind: NoteKind::Progress,
                    params: Bytes::new(),
                })
            } else {
                ReplyEvent::End(ReplyEnd::Complete(Payload::Whole(Bytes::from_static(
                    b"{}",
                ))))
            })
        }
    }

    #[tokio::test]
    async fn a_reply_ends_exactly_once() {
        let mut reply = Reply::live(TwoEventSource(0));
        assert!(matches!(reply.next().await, Some(ReplyEvent::Note(_))));
        assert!(matches!(
            reply.next().await,
            Some(ReplyEvent::End(ReplyEnd::Complete(_)))
        ));
        assert!(reply.next().await.is_none());
        let mut ended = Reply::ended(Failure::internal("x"));
        assert!(ended.is_ended());
        assert!(matches!(
            ended.next().await,
            Some(ReplyEvent::End(ReplyEnd::Failed(_)))
        ));
        assert!(ended.next().await.is_none());
    }

    fn progress() -> ReplyEvent {
        ReplyEvent::Note(ReplyNote {
            kind: NoteKind::Progress,
            params: Bytes::new(),
        })
    }

    /// Returns the number of notes before the end.
    async fn count_notes(mut reply: Reply) -> usize {
        let mut notes = 0;
        loop {
            match reply.next().await.unwrap() {
                ReplyEvent::Note(_) => notes += 1,
                ReplyEvent::Ask(_) => panic!("no question was asked"),
                ReplyEvent::End(ReplyEnd::Complete(_)) => break,
                ReplyEvent::End(end) => panic!("{end:?}"),
            }
        }
        assert!(reply.next().await.is_none());
        notes
    }

    #[tokio::test]
    async fn first_event_of_a_source_is_kept_for_the_reader() {
        let reply = Reply::started(TwoEventSource(0)).await;
        assert!(!reply.is_ended());
        assert_eq!(count_notes(reply).await, 1);
        let reply = Reply::started(TwoEventSource(1)).await;
        assert!(reply.is_ended());
        assert_eq!(count_notes(reply).await, 0);
    }

    #[tokio::test]
    async fn event_that_is_put_back_comes_again() {
        let mut reply = Reply::live(TwoEventSource(0));
        let first = reply.next().await.unwrap();
        assert_eq!(count_notes(reply.with_first_event(first)).await, 1);
        let mut reply = Reply::live(TwoEventSource(1));
        let end = reply.next().await.unwrap();
        let reply = reply.with_first_event(end);
        assert!(reply.is_ended());
        assert_eq!(count_notes(reply).await, 0);
    }

    #[tokio::test]
    async fn reply_of_a_call_has_the_events_of_the_reply_that_the_call_returns() {
        let of = |reply: Reply| Reply::of_call(Box::pin(async { reply }));
        assert_eq!(count_notes(of(Reply::live(TwoEventSource(0)))).await, 1);
        let put_back = Reply::live(TwoEventSource(0)).with_first_event(progress());
        assert_eq!(count_notes(of(of(put_back))).await, 2);
        let whole = ReplyEnd::Complete(Payload::Whole(Bytes::new()));
        assert_eq!(count_notes(of(Reply::ended(whole))).await, 0);
    }
}
