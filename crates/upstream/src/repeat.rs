//! Repeats a request after its connection broke, if that does no harm
//! ([`OutboundCall::may_repeat`]).
//!
//! It is unknown if the first request was executed. So it is repeated once, only before any part of
//! the response was forwarded, and within a budget: a server that breaks every connection gets a
//! tenth more requests and not twice as many.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::port::Fut;
use weir_core::reply::{NoteKind, Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_core::telemetry::instruments;
use weir_core::upstream::{ListKind, OutboundCall};
use weir_era::upstream_messages::ResendProof;
use weir_wire::method::Method;

use crate::failed_attempt::FailedAttempt;
use crate::stack::{call_with_resend, poll_next_event};
use crate::started_reply::wait_for_first_event;
use crate::upstream_context::UpstreamContext;
use crate::upstream_service::UpstreamService;

/// The reason label of the metric.
const REPEAT_REASON: &str = "connection_lost";
/// The calls that earn one repetition.
const CALLS_PER_REPEAT: u64 = 10;
/// The most repetitions that can be saved up, in calls: those of the last thousand.
const MAX_SAVED_CALLS: u64 = 100 * CALLS_PER_REPEAT;
/// The repetitions beside the earned ones: ten at first, and one more every six seconds, so that
/// calls to a quiet server are repeated, too.
const FREE_REPEATS: u64 = 10;
const FREE_REPEAT_MILLIS: u64 = 6_000;
/// The longest wait in all for a server that just ended, if its failures state when it can be tried
/// again.
const MAX_RESTART_WAIT: Duration = Duration::from_secs(2);
const MIN_RESTART_WAIT: Duration = Duration::from_millis(20);

/// The budget of repetitions at one server: a tenth of its calls, and a few beside. Modelled on
/// tower's retry budgets.
#[derive(Debug, Default)]
pub(crate) struct RepeatBudget {
    /// The calls that have not paid for a repetition yet.
    calls: AtomicU64,
    /// The time at which the floor is whole again, in milliseconds.
    whole_at: AtomicU64,
}

impl RepeatBudget {
    /// Counts a call.
    pub(crate) fn count_call(&self) {
        // Most calls find it full or add to it without contention. A lost count in a race makes no
        // difference.
        let calls = self.calls.load(Ordering::Relaxed);
        if calls < MAX_SAVED_CALLS {
            self.calls.store(calls + 1, Ordering::Relaxed);
        }
    }

    /// Takes one repetition at this time, in milliseconds; false if the budget is empty.
    fn take(&self, now: u64) -> bool {
        let spend = |calls: u64| calls.checked_sub(CALLS_PER_REPEAT);
        if self
            .calls
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .is_ok()
        {
            return true;
        }
        let later = |whole_at: u64| {
            let whole_at = whole_at.max(now) + FREE_REPEAT_MILLIS;
            (whole_at - now <= FREE_REPEATS * FREE_REPEAT_MILLIS).then_some(whole_at)
        };
        self.whole_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
            .is_ok()
    }
}

impl UpstreamContext {
    /// Takes one repetition from the budget, if it has one, and counts it as sent.
    fn take_repetition(&self) -> bool {
        let taken = self.repeat_budget.take(self.millis());
        if taken {
            instruments()
                .upstream_retries
                .add(1, &[self.label(), KeyValue::new("reason", REPEAT_REASON)]);
        }
        taken
    }
}

/// Makes a request of weir's own, and repeats it once if it asks for a list and its connection
/// broke.
pub(crate) async fn request_with_repeat<T, A>(
    site: &UpstreamContext,
    method: Method,
    ask: impl Fn() -> A,
) -> Result<T, FailedAttempt>
where
    A: Future<Output = Result<T, FailedAttempt>>,
{
    let first = ask().await;
    if take_repetition_for(site, method, &first) {
        ask().await
    } else {
        first
    }
}

fn take_repetition_for<T>(
    site: &UpstreamContext,
    method: Method,
    outcome: &Result<T, FailedAttempt>,
) -> bool {
    if ListKind::ALL
        .into_iter()
        .all(|kind| kind.method() != method)
    {
        return false;
    }
    site.repeat_budget.count_call();
    matches!(outcome, Err(refusal) if refusal.failure.is_connection_lost())
        && site.take_repetition()
}

/// Makes a call, and repeats it once if its connection breaks before any part of the response was
/// forwarded.
pub(crate) async fn call_with_repeat(
    server: &Arc<UpstreamService>,
    outbound: OutboundCall,
) -> Reply {
    server.site.repeat_budget.count_call();
    let mut used = Vec::new();
    let first = match call_with_resend(server, &outbound, &mut used).await {
        Ok(reply) => reply,
        Err(refusal) => Reply::ended(refusal.failure),
    };
    if !outbound.may_repeat() {
        return first;
    }
    let call = RepeatableCall {
        server: server.clone(),
        outbound: Arc::new(outbound),
        used,
    };
    wait_for_first_event(RepeatingReply {
        call: Some(call),
        stage: RepeatStage::Replying(first),
    })
    .await
}

/// A call that may be made again.
struct RepeatableCall {
    server: Arc<UpstreamService>,
    outbound: Arc<OutboundCall>,
    /// The proofs that earlier attempts were repeated for.
    used: Vec<ResendProof>,
}

impl RepeatableCall {
    /// Makes the call again. `lost` is the end of the first attempt, which is returned if the
    /// second does not reach the server.
    async fn call_again(mut self, lost: ReplyEnd) -> Reply {
        let mut waited = Duration::ZERO;
        loop {
            let refusal = match call_with_resend(&self.server, &self.outbound, &mut self.used).await
            {
                Ok(reply) => return reply,
                Err(refusal) => refusal,
            };
            if !refusal.not_attempted && !refusal.not_reached {
                return Reply::ended(refusal.failure);
            }
            // A process that ended is not started again in the same moment.
            let wait = refusal
                .failure
                .retry_delay()
                .filter(|_| refusal.not_attempted)
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
    stage: RepeatStage,
}

enum RepeatStage {
    Replying(Reply),
    Calling(Fut<'static, Reply>),
}

impl ReplySource for RepeatingReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            let reply = match &mut self.stage {
                RepeatStage::Calling(calling) => {
                    self.stage = RepeatStage::Replying(ready!(calling.as_mut().poll(cx)));
                    continue;
                }
                RepeatStage::Replying(reply) => reply,
            };
            match ready!(poll_next_event(reply, cx)) {
                // The client sees no change by it.
                ReplyEvent::Note(note) if note.kind == NoteKind::StillWorking => {
                    return Poll::Ready(ReplyEvent::Note(note));
                }
                ReplyEvent::End(ReplyEnd::Failed(failure)) if failure.is_connection_lost() => {
                    let call = self
                        .call
                        .take()
                        .filter(|call| call.server.site.take_repetition());
                    let Some(call) = call else {
                        return Poll::Ready(ReplyEvent::End(ReplyEnd::Failed(failure)));
                    };
                    self.stage =
                        RepeatStage::Calling(Box::pin(call.call_again(ReplyEnd::Failed(failure))));
                }
                event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                    self.call = None;
                    return Poll::Ready(event);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_budget_is_ten_plus_a_tenth_of_the_calls() {
        let budget = RepeatBudget::default();
        let take = |now: u64| (0..10_000).take_while(|_| budget.take(now)).count();
        assert_eq!(take(0), 10, "a few at first");
        assert_eq!(take(FREE_REPEAT_MILLIS - 1), 0);
        assert_eq!(take(FREE_REPEAT_MILLIS), 1, "one every six seconds");
        assert_eq!(
            take(1000 * FREE_REPEAT_MILLIS),
            10,
            "no more than at first are kept"
        );
        for calls in [9, 1, 500] {
            (0..calls).for_each(|_| budget.count_call());
        }
        assert_eq!(take(1000 * FREE_REPEAT_MILLIS), 51, "a tenth of the calls");
        (0..1_000_000).for_each(|_| budget.count_call());
        assert_eq!(
            take(1000 * FREE_REPEAT_MILLIS),
            100,
            "of the last thousand at most"
        );
    }
}
