//! Repeats a request after its connection broke, if that does no harm
//! ([`OutboundCall::may_repeat`]).
//!
//! It is unknown if the first request was executed. So it is repeated once, only before any part of
//! the response was forwarded, and within a budget: a server that breaks every connection gets a
//! tenth more requests and not twice as many.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use weir_core::reply::{NoteKind, Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_core::upstream::OutboundCall;
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::Reach;

use crate::call_attempts::CallAttempts;
use crate::instances::InstanceRoute;
use crate::resend::call_with_resend;

/// The longest wait in all for a server that just ended, if its failures state when it can be tried
/// again.
const MAX_RESTART_WAIT: Duration = Duration::from_secs(2);
const MIN_RESTART_WAIT: Duration = Duration::from_millis(20);

/// Makes a call, and repeats it once if its connection breaks before any part of the response was
/// forwarded. `route` is the way of the call over several URLs.
pub(crate) async fn call_with_repeat(
    attempts: Arc<CallAttempts>,
    outbound: OutboundCall,
    route: Option<Arc<InstanceRoute>>,
) -> Reply {
    attempts.context().repeat_budget.count_call();
    let mut used = Vec::new();
    let first = match call_with_resend(&attempts, &outbound, &mut used, route.as_deref()).await {
        Ok(reply) => reply,
        Err(refusal) => Reply::ended(refusal.failure),
    };
    if !outbound.may_repeat() {
        return first;
    }
    let call = RepeatableCall {
        attempts,
        outbound: Arc::new(outbound),
        used,
        route,
    };
    let mut repeating = RepeatingReply {
        call: Some(call),
        reply: first,
    };
    match poll_fn(|cx| repeating.poll_event(cx)).await {
        ReplyEvent::End(end) => Reply::ended(end),
        first @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_)) => {
            let reply = if repeating.call.is_some() {
                Reply::live(repeating)
            } else {
                // A part of the response is forwarded: the call is not repeated any more.
                repeating.reply
            };
            reply.with_first_event(first)
        }
    }
}

/// A call that may be made again.
struct RepeatableCall {
    attempts: Arc<CallAttempts>,
    outbound: Arc<OutboundCall>,
    /// The proofs that earlier attempts were repeated for.
    used: Vec<ResendProof>,
    /// The way of the call over several URLs.
    route: Option<Arc<InstanceRoute>>,
}

impl RepeatableCall {
    /// Makes the call again. `lost` is the end of the first attempt, which is returned if the
    /// second does not reach the server.
    async fn call_again(mut self, lost: ReplyEnd) -> Reply {
        let mut waited = Duration::ZERO;
        loop {
            let route = self.route.as_deref();
            let again =
                call_with_resend(&self.attempts, &self.outbound, &mut self.used, route).await;
            let refusal = match again {
                Ok(reply) => return reply,
                Err(refusal) => refusal,
            };
            if refusal.reach == Reach::Reached {
                return Reply::ended(refusal.failure);
            }
            // A process that ended is not started again in the same moment.
            let wait = refusal
                .failure
                .retry_delay()
                .filter(|_| !refusal.was_attempted())
                .map(|wait| wait.max(MIN_RESTART_WAIT));
            let Some(wait) = wait.filter(|wait| waited + *wait <= MAX_RESTART_WAIT) else {
                return Reply::ended(lost);
            };
            waited += wait;
            tokio::time::sleep(wait).await;
        }
    }
}

/// A reply with a call that is repeated if its connection breaks.
struct RepeatingReply {
    /// Absent once the call was repeated, or a part of the response was forwarded.
    call: Option<RepeatableCall>,
    reply: Reply,
}

impl ReplySource for RepeatingReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match ready!(self.reply.poll_event(cx)) {
                // The client sees no change by it.
                ReplyEvent::Note(note) if note.kind == NoteKind::StillWorking => {
                    return Poll::Ready(ReplyEvent::Note(note));
                }
                ReplyEvent::End(ReplyEnd::Failed(failure)) if failure.is_connection_lost() => {
                    let call = self.call.take().filter(|call| {
                        let context = call.attempts.context();
                        context
                            .repeat_budget
                            .take_repetition(context.clock.millis(), context.label.attribute())
                    });
                    let Some(call) = call else {
                        return Poll::Ready(ReplyEvent::End(ReplyEnd::Failed(failure)));
                    };
                    let again = call.call_again(ReplyEnd::Failed(failure));
                    self.reply = Reply::of_call(Box::pin(again));
                }
                event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                    self.call = None;
                    return Poll::Ready(event);
                }
            }
        }
    }
}
