//! Running replies: their next event, and replies that are handed on after their first event.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use weir_core::Failure;
use weir_core::reply::{Payload, Reply, ReplyEnd, ReplyEvent, ReplySource};

/// Polls the next event. Reading a reply after its end is an internal error.
pub fn poll_next_event(reply: &mut Reply, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
    reply.poll_next(cx).map(|event| {
        event.unwrap_or_else(|| {
            ReplyEvent::End(Failure::internal("a reply was read on after its end").into())
        })
    })
}

/// Reads a source up to its first event. Dropping the future drops the source.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async function has its arguments twice, and a source is large"
)]
pub fn wait_for_first_event(
    mut source: impl ReplySource + 'static,
) -> impl Future<Output = Reply> + Send {
    async move {
        match poll_fn(|cx| source.poll_event(cx)).await {
            // A reply that is over needs its source no more; a result that streams does.
            ReplyEvent::End(end) if !matches!(end, ReplyEnd::Complete(Payload::Stream(_))) => {
                Reply::ended(end)
            }
            first @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                Reply::live(StartedReply {
                    first: Some(first),
                    source,
                })
            }
        }
    }
}

/// A source and its first event.
struct StartedReply<S> {
    first: Option<ReplyEvent>,
    source: S,
}

impl<S: ReplySource> ReplySource for StartedReply<S> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        match self.first.take() {
            Some(event) => Poll::Ready(event),
            None => self.source.poll_event(cx),
        }
    }
}
