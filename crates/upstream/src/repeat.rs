//! Sending a request again after its connection broke, where that does no harm
//! ([`Outbound::may_repeat`]).
//!
//! Nobody knows whether the first was executed, so it is done once, only while nothing of the
//! answer has gone on, and within a budget: a server that breaks every connection gets a tenth more
//! of requests and not twice as many.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::port::Fut;
use weir_core::reply::{End, Event, NoteKind, Reply, ReplySource};
use weir_core::telemetry::instruments;
use weir_core::upstream::{ListKind, Outbound};
use weir_era::hop::Proof;
use weir_wire::method::Method;

use crate::begun_reply::begun;
use crate::column::{attempts, next};
use crate::refusal::Refusal;
use crate::server::Server;
use crate::site::Site;

/// The word of the metric.
const REASON: &str = "connection_lost";
/// How many calls earn one repetition.
const CALLS: u64 = 10;
/// Repetitions that can be saved up, in calls: those of the last thousand.
const MOST_CALLS: u64 = 100 * CALLS;
/// Beside what is earned there are ten at first, and one more every six seconds, so that those of a
/// quiet server are repeated, too.
const FLOOR: u64 = 10;
const FLOOR_EVERY: u64 = 6_000;
/// How long a server that just ended is waited for in all, where it says when it can be asked
/// again.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// How often requests to one server may be repeated: after a tenth of its calls, and a few beside.
/// After that of tower's retry budgets.
#[derive(Debug, Default)]
pub(crate) struct RepeatBudget {
    /// Calls that no repetition was taken for.
    calls: AtomicU64,
    /// When the floor will be whole again, in milliseconds.
    whole_at: AtomicU64,
}

impl RepeatBudget {
    /// A call is made.
    pub(crate) fn earn(&self) {
        // Most calls find it full or add to it without contention; which of two that race is
        // counted makes no difference.
        let calls = self.calls.load(Ordering::Relaxed);
        if calls < MOST_CALLS {
            self.calls.store(calls + 1, Ordering::Relaxed);
        }
    }

    /// Takes one repetition at this time, in milliseconds; false where there is none.
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
    /// Whether a request may be sent again now. It counts as sent then.
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

/// Makes a request of weir's own, and once more where it asks for a list and its connection broke.
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

/// Makes a call, and once more where its connection breaks before anything of the answer has gone
/// on.
pub(crate) async fn call(server: &Arc<Server>, outbound: Outbound) -> Reply {
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
    outbound: Arc<Outbound>,
    /// What the attempts before were repeated for.
    used: Vec<Proof>,
}

impl Repeated {
    /// Makes the call again. `lost` is the end of the first, which stands where the second reaches
    /// nobody.
    async fn again(mut self, lost: End) -> Reply {
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
                .wait()
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

/// A reply whose call is made again where it breaks off.
struct Repeating {
    /// Gone once it was made again, or something of the answer has gone on.
    call: Option<Repeated>,
    stage: Stage,
}

enum Stage {
    Replying(Reply),
    Calling(Fut<'static, Reply>),
}

impl ReplySource for Repeating {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            let reply = match &mut self.stage {
                Stage::Calling(calling) => {
                    self.stage = Stage::Replying(ready!(calling.as_mut().poll(cx)));
                    continue;
                }
                Stage::Replying(reply) => reply,
            };
            match ready!(next(reply, cx)) {
                // It tells the client nothing.
                Event::Note(note) if note.kind == NoteKind::Waiting => {
                    return Poll::Ready(Event::Note(note));
                }
                Event::End(End::Failed(failure)) if failure.is_connection_lost() => {
                    let call = self
                        .call
                        .take()
                        .filter(|call| call.server.site.takes_repetition());
                    let Some(call) = call else {
                        return Poll::Ready(Event::End(End::Failed(failure)));
                    };
                    self.stage = Stage::Calling(Box::pin(call.again(End::Failed(failure))));
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
