//! The reply to a call whose messages may come on another stream before the head of its response.
//! Some servers answer a call with plain JSON, whose head comes with the result, and ask questions
//! on the session's standing stream meanwhile.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use weir_core::port::BoxFuture;
use weir_core::reply::{Reply, ReplyEvent, ReplySource};
use weir_upstream_core::failed_attempt::FailedAttempt;

use crate::http_call::HttpCallReply;
use crate::response_reader::ResponseReader;

/// The head of a response: a body with messages, or the failed attempt, once it is known if the
/// session is lost.
pub(crate) type HeadOutcome = Result<ResponseReader, BoxFuture<'static, FailedAttempt>>;

/// Waits for the first event of a call on another stream, or for the head of its response and the
/// first event then. Dropping the future, or later the reply, cancels the call at the server.
///
/// # Errors
/// The attempt failed before the first event. After an event the call is not made again, and its
/// reply ends with the failure.
pub(crate) async fn reply(
    call: HttpCallReply,
    head: BoxFuture<'static, HeadOutcome>,
) -> Result<Reply, FailedAttempt> {
    let mut early = EarlyReply {
        head: HeadState::Awaited(head),
        call,
    };
    match poll_fn(|cx| early.poll_start(cx)).await {
        ReplyStart::Event(first) => Ok(Reply::live(early).with_first_event(first)),
        ReplyStart::Head(Ok(answer)) => Ok(Reply::started(early.call.with_answer(answer)).await),
        ReplyStart::Head(Err(refusal)) => {
            early.call.end();
            drop(early);
            Err(refusal.await)
        }
    }
}

/// The beginning of a reply.
#[expect(
    clippy::large_enum_variant,
    reason = "the usual variant is the large one, and it is moved once"
)]
enum ReplyStart {
    /// An event from another stream.
    Event(ReplyEvent),
    Head(HeadOutcome),
}

struct EarlyReply {
    /// Dropped before the call: the connection is closed before the call is cancelled.
    head: HeadState,
    call: HttpCallReply,
}

enum HeadState {
    Awaited(BoxFuture<'static, HeadOutcome>),
    /// The attempt failed. The call is over.
    Refused(BoxFuture<'static, FailedAttempt>),
    Arrived,
}

impl EarlyReply {
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<ReplyStart> {
        // A head that has arrived counts first: an attempt that failed can still be made again.
        if let HeadState::Awaited(head) = &mut self.head
            && let Poll::Ready(head) = head.as_mut().poll(cx)
        {
            return Poll::Ready(ReplyStart::Head(head));
        }
        self.call.poll_other_stream(cx).map(ReplyStart::Event)
    }
}

impl ReplySource for EarlyReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match &mut self.head {
                HeadState::Arrived => return self.call.poll_event(cx),
                HeadState::Awaited(head) => {
                    if let Poll::Ready(event) = self.call.poll_other_stream(cx) {
                        return Poll::Ready(event);
                    }
                    self.head = match ready!(head.as_mut().poll(cx)) {
                        Ok(answer) => {
                            self.call.set_answer(answer);
                            HeadState::Arrived
                        }
                        Err(refusal) => {
                            self.call.end();
                            HeadState::Refused(refusal)
                        }
                    };
                }
                HeadState::Refused(refusal) => {
                    let refusal = ready!(refusal.as_mut().poll(cx));
                    return Poll::Ready(ReplyEvent::End(refusal.failure.into()));
                }
            }
        }
    }
}
