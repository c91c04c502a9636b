//! Replies whose first event is waited for before they are handed on.

use std::future::poll_fn;
use std::task::{Context, Poll};

use weir_core::reply::{End, Event, Payload, Reply, ReplySource};

/// Reads a source up to its first event. Dropping the future drops the source.
pub(crate) async fn begun(mut source: impl ReplySource + 'static) -> Reply {
    match poll_fn(|cx| source.poll_event(cx)).await {
        // A reply that is over needs nothing of its source any more; a result that streams does.
        Event::End(end) if !matches!(end, End::Complete(Payload::Stream(_))) => Reply::ended(end),
        first => Reply::live(Begun { first: Some(first), source }),
    }
}

/// A source and its first event.
struct Begun<S> {
    first: Option<Event>,
    source: S,
}

impl<S: ReplySource> ReplySource for Begun<S> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match self.first.take() {
            Some(event) => Poll::Ready(event),
            None => self.source.poll_event(cx),
        }
    }
}
