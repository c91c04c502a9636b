//! Repeats a request after its connection broke, if that does no harm ([`Outbound::may_repeat`]).
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

use crate::begun_reply::begun;
use crate::column::{attempts, next};
use crate::refusal::Refusal;
use crate::server::Server;
use crate::site::Site;

/// The reason label of the metric.
const REASON: &str = "connection_lost";
/// The calls that earn one repetition.
const CALLS: u64 = 10;
/// The most repetitions that can be saved up, in calls: those of the last thousand.
const MOST_CALLS: u64 = 100 * CALLS;
/// The repetitions beside the earned ones: ten at first, and one more every six seconds, so that
/// calls to a quiet server are repeated, too.
const FLOOR: u64 = 10;
const FLOOR_EVERY: u64 = 6_000;
/// The longest wait in all for a server that just ended, if its failures state when it can be tried
/// again.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

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
    pub(crate) fn earn(&self) {
        // Most calls find it full or add to it without contention. A lost count in a race makes no
        // difference.
        let calls = self.calls.load(Ordering::Relaxed);
        if calls < MOST_CALLS {
            self.calls.store(calls + 1, Ordering::Relaxed);
        }
    }

    /// Takes one repetition at this time, in milliseconds; false if the budget is empty.
    fn take(&self, now: u64) -> bool {
        let spend = |calls: u64| calls.checked_sub(CALLS);
        if self
            .calls
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .is_ok()
        {
            return true;
        }
        let later = |whole_at: u64| {
            let whole_at = whole_at.max(now) + FLOOR_EVERY;
            (whole_at - now <= FLOOR * FLOOR_EVERY).then_some(whole_at)
        };
        self.whole_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
            .is_ok()
    }
}

impl Site {
    /// Takes one repetition from the budget, if it has one, and counts it as sent.
    fn takes_repetition(&self) -> bool {
        let taken = self.repeats.take(self.millis());
        if taken {
            instruments()
                .upstream_retries
                .add(1, &[self.label(), KeyValue::new("reason", REASON)]);
        }
        taken
    }
}

/// Makes a request of weir's own, and repeats it once if it asks for a list and its connection
/// broke.
pub(crate) async fn asked<T, A>(
    site: &Site,
    method: Method,
    ask: impl Fn() -> A,
) -> Result<T, Refusal>
where
    A: Future<Output = Result<T, Refusal>>,
{
    let first = ask().await;
    if repeats(site, method, &first) {
        ask().await
    } else {
        first
    }
}

fn repeats<T>(site: &Site, method: Method, outcome: &Result<T, Refusal>) -> bool {
    if ListKind::ALL
        .into_iter()
        .all(|kind| kind.method() != method)
    {
        return false;
    }
    site.repeats.earn();
    matches!(outcome, Err(refusal) if refusal.failure.is_connection_lost())
        && site.takes_repetition()
}

/// Makes a call, and repeats it once if its connection breaks before any part of the response was
/// forwarded.
pub(crate) async fn call(server: &Arc<Server>, outbound: OutboundCall) -> Reply {
    server.site.repeats.earn();
    let mut used = Vec::new();
    let first = match attempts(server, &outbound, &mut used).await {
        Ok(reply) => reply,
        Err(refusal) => Reply::ended(refusal.failure),
    };
    if !outbound.may_repeat() {
        return first;
    }
    let call = Repeated {
        server: server.clone(),
        outbound: Arc::new(outbound),
        used,
    };
    begun(Repeating {
        call: Some(call),
        stage: Stage::Replying(first),
    })
    .await
}

/// A call that may be made again.
struct Repeated {
    server: Arc<Server>,
    outbound: Arc<OutboundCall>,
    /// The proofs that earlier attempts were repeated for.
    used: Vec<ResendProof>,
}

impl Repeated {
    /// Makes the call again. `lost` is the end of the first attempt, which is returned if the
    /// second does not reach the server.
    async fn again(mut self, lost: ReplyEnd) -> Reply {
        let mut waited = Duration::ZERO;
        loop {
            let refusal = match attempts(&self.server, &self.outbound, &mut self.used).await {
                Ok(reply) => return reply,
                Err(refusal) => refusal,
            };
            if !refusal.unasked && !refusal.unreached {
                return Reply::ended(refusal.failure);
            }
            // A process that ended is not started again in the same moment.
            let wait = refusal
                .failure
                .retry_delay()
                .filter(|_| refusal.unasked)
                .map(|wait| wait.max(SHORTEST_WAIT));
            let Some(wait) = wait.filter(|wait| waited + *wait <= LONGEST_WAIT) else {
                return Reply::ended(lost);
            };
            waited += wait;
            tokio::time::sleep(wait).await;
        }
    }
}

/// A reply with a call that is repeated if its connection breaks.
struct Repeating {
    /// Absent once the call was repeated, or a part of the response was forwarded.
    call: Option<Repeated>,
    stage: Stage,
}

enum Stage {
    Replying(Reply),
    Calling(Fut<'static, Reply>),
}

impl ReplySource for Repeating {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            let reply = match &mut self.stage {
                Stage::Calling(calling) => {
                    self.stage = Stage::Replying(ready!(calling.as_mut().poll(cx)));
                    continue;
                }
                Stage::Replying(reply) => reply,
            };
            match ready!(next(reply, cx)) {
                // The client sees no change by it.
                ReplyEvent::Note(note) if note.kind == NoteKind::StillWorking => {
                    return Poll::Ready(ReplyEvent::Note(note));
                }
                ReplyEvent::End(ReplyEnd::Failed(failure)) if failure.is_connection_lost() => {
                    let call = self
                        .call
                        .take()
                        .filter(|call| call.server.site.takes_repetition());
                    let Some(call) = call else {
                        return Poll::Ready(ReplyEvent::End(ReplyEnd::Failed(failure)));
                    };
                    self.stage = Stage::Calling(Box::pin(call.again(ReplyEnd::Failed(failure))));
                }
                event => {
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
    fn a_quiet_server_has_a_few_and_a_busy_one_a_tenth() {
        let budget = RepeatBudget::default();
        let take = |now: u64| (0..10_000).take_while(|_| budget.take(now)).count();
        assert_eq!(take(0), 10, "a few at first");
        assert_eq!(take(FLOOR_EVERY - 1), 0);
        assert_eq!(take(FLOOR_EVERY), 1, "one every six seconds");
        assert_eq!(
            take(1000 * FLOOR_EVERY),
            10,
            "no more than at first are kept"
        );
        for calls in [9, 1, 500] {
            (0..calls).for_each(|_| budget.earn());
        }
        assert_eq!(take(1000 * FLOOR_EVERY), 51, "a tenth of the calls");
        (0..1_000_000).for_each(|_| budget.earn());
        assert_eq!(
            take(1000 * FLOOR_EVERY),
            100,
            "of the last thousand at most"
        );
    }
}
