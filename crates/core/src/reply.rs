//! The reply to a call: notes, and then exactly one end.
//!
//! A [`Reply`] has one owner. Dropping it cancels the call, down to the upstream socket.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;
use weir_wire::log_level::LogLevel;
use weir_wire::method::Method;

use crate::call::ParkedId;
use crate::failure::Failure;
use crate::question::PendingQuestion;

/// One event of a call.
#[derive(Debug)]
pub enum ReplyEvent {
    /// A notification for the client while the call runs.
    Note(ReplyNote),
    /// A question of the upstream for the client; the call goes on with the answer.
    Ask(Box<PendingQuestion>),
    /// The call is over; it is the last event.
    End(ReplyEnd),
}

/// A notification that belongs to a call.
#[derive(Debug, Clone)]
pub struct ReplyNote {
    /// The kind of notification.
    pub kind: NoteKind,
    /// The notification's `params` object as the upstream wrote it. Its `progressToken`, if any, is
    /// the upstream hop's.
    pub params: Bytes,
}

/// The kinds of notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// `notifications/progress`, already known to belong to this call and to increase.
    Progress,
    /// `notifications/message` of this level.
    Log(LogLevel),
    /// Any other notification.
    Other(Method),
    /// No notification: the server takes its time, and the client's response begins without waiting
    /// for the answer. It does not reset the idle timeout.
    StillWorking,
}

/// The end of a call.
#[derive(Debug)]
pub enum ReplyEnd {
    /// A complete result: the `result` object as the upstream wrote it.
    Complete(Payload),
    /// The upstream wants input first (`resultType: "input_required"`): the `result` object as the
    /// upstream wrote it.
    InputRequired(Payload),
    /// The upstream asked a question, and the call waits for the answer while parked: `result` has
    /// the questions, and a call made with [`crate::CallResumption::Parked`] of this id goes on
    /// with it.
    Parked {
        /// The name of the parked call.
        id: ParkedId,
        /// An `input_required` result object without a state.
        result: Bytes,
    },
    /// The work goes on as a task: a `CreateTaskResult` in the form of the tasks extension. Its
    /// `taskId` is the upstream's own on the way to the router, and the client's from there on.
    Task(Bytes),
    /// No result.
    Failed(Box<Failure>),
}

impl From<Failure> for ReplyEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

/// The bytes of a result: whole if they fitted a small buffer, else a stream of chunks.
pub enum Payload {
    /// All of it.
    Whole(Bytes),
    /// All of it, without its hidden characters: the client gets their number. Only the router
    /// makes it, and only in [`ReplyEnd::Complete`].
    Cleaned {
        /// The `result` object.
        result: Bytes,
        /// The number of characters and escape sequences that were removed: at least one.
        removed: u64,
    },
    /// More than weir buffers.
    Stream(Box<dyn PayloadSource>),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Cleaned { result, removed } => {
                write!(f, "Cleaned({} bytes, {removed} removed)", result.len())
            }
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// A result that is still arriving. Dropping it cancels the call.
pub trait PayloadSource: Send {
    /// The next bytes of the `result` object; `None` after its closing brace. A failure ends it.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>>;

    /// The number of hidden characters and escape sequences removed from the chunks so far. A
    /// source around another one passes on the inner number.
    fn removed(&self) -> u64 {
        0
    }
}

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
    Live(Box<dyn ReplySource>),
    Over,
}

impl Reply {
    /// A reply that is already over: the usual case of a small result.
    #[must_use]
    pub fn ended(end: impl Into<ReplyEnd>) -> Self {
        Self {
            state: ReplyState::Ended(end.into()),
            deadline: None,
        }
    }

    /// A reply with the events of `source`.
    #[must_use]
    pub fn live(source: impl ReplySource + 'static) -> Self {
        Self {
            state: ReplyState::Live(Box::new(source)),
            deadline: None,
        }
    }

    /// True if the next event is at hand and is the end.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state, ReplyState::Ended(_))
    }

    /// The next event; `None` after the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ReplyEvent>> {
        match std::mem::replace(&mut self.state, ReplyState::Over) {
            ReplyState::Over => Poll::Ready(None),
            ReplyState::Ended(end) => Poll::Ready(Some(ReplyEvent::End(end))),
            ReplyState::Live(mut source) => match source.poll_event(cx) {
                Poll::Pending => {
                    self.state = ReplyState::Live(source);
                    Poll::Pending
                }
                Poll::Ready(end @ ReplyEvent::End(_)) => Poll::Ready(Some(end)),
                Poll::Ready(event) => {
                    self.state = ReplyState::Live(source);
                    Poll::Ready(Some(event))
                }
            },
        }
    }

    /// The next event; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<ReplyEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Passes every event through `change`, for layers that change or observe a reply.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(ReplyEvent) -> ReplyEvent + Send + 'static) -> Self {
        let until = self.deadline;
        let changed = match self.state {
            ReplyState::Over => Self {
                state: ReplyState::Over,
                deadline: until,
            },
            ReplyState::Ended(end) => match change(ReplyEvent::End(end)) {
                ReplyEvent::End(end) => Self::ended(end),
                // A layer that turns the end into a note would leave the reply without one.
                ReplyEvent::Note(_) | ReplyEvent::Ask(_) => Self {
                    state: ReplyState::Over,
                    deadline: until,
                },
            },
            ReplyState::Live(inner) => Self::live(MappedReply { inner, change }),
        };
        Self {
            deadline: until,
            ..changed
        }
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

struct MappedReply<F> {
    inner: Box<dyn ReplySource>,
    change: F,
}

impl<F: FnMut(ReplyEvent) -> ReplyEvent + Send> ReplySource for MappedReply<F> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        self.inner.poll_event(cx).map(&mut self.change)
    }
}

impl<S> ReplySource for Pin<Box<S>>
where
    S: futures_core::Stream<Item = ReplyEvent> + Send + ?Sized,
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
        let mut reply = Reply::live(TwoEventSource(0)).map(|event| event);
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
}
