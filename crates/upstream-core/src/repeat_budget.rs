//! The budget of repeated requests at one server: a server that breaks every connection gets a
//! tenth more requests and not twice as many.

use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::KeyValue;
use weir_core::telemetry::instruments;

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
/// The budget of repetitions at one server: a tenth of its calls, and a few beside. Modelled on
/// tower's retry budgets.
#[derive(Debug, Default)]
pub struct RepeatBudget {
    /// The calls that have not paid for a repetition yet.
    calls: AtomicU64,
    /// The time at which the floor is whole again, in milliseconds.
    whole_at: AtomicU64,
}

impl RepeatBudget {
    /// Counts a call.
    pub fn count_call(&self) {
        // Most calls find it full or add to it without contention. A lost count in a race makes no
        // difference.
        let calls = self.calls.load(Ordering::Relaxed);
        if calls < MAX_SAVED_CALLS {
            self.calls.store(calls + 1, Ordering::Relaxed);
        }
    }

    /// Takes one repetition for the upstream of this label at this time, in milliseconds, and
    /// counts it as sent; false if the budget is empty.
    pub fn take_repetition(&self, now: u64, upstream: KeyValue) -> bool {
        let taken = self.take(now);
        if taken {
            instruments()
                .upstream_retries
                .add(1, &[upstream, KeyValue::new("reason", REPEAT_REASON)]);
        }
        taken
    }

    /// Takes one repetition at this time; false if the budget is empty.
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
