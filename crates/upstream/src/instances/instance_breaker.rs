//! The circuit breaker of one instance among several. Sans-IO: the time is an argument.
//!
//! An instance with the breaker open gets no calls while another one serves. It opens when a
//! connection cannot be opened, or after five failures in a row. weir's own request finds out if
//! the instance answers again. Then the breaker is half open: a few calls at a time, until some of
//! them were answered.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use weir_core::upstream::InstanceBreakerState;

use crate::breaker::{AttemptStart, Breaker, TimeMark};

/// The answered calls that close a half-open breaker, and the most calls in flight meanwhile.
const PROBATION_CALLS: u32 = 3;

/// The breaker of one instance.
#[derive(Debug, Default)]
pub(crate) struct InstanceBreaker {
    failures: Breaker,
    open: AtomicBool,
    /// The answered calls that a half-open breaker still waits for.
    probation: AtomicU32,
    /// The times that it opened since it was last closed.
    openings: AtomicU32,
    /// The time at which it opened or ceased to be open last.
    changed: TimeMark,
}

impl InstanceBreaker {
    /// True if the instance may get a further call while it has `in_flight` of them.
    pub(crate) fn takes_call(&self, in_flight: usize) -> bool {
        !self.is_open()
            && (self.probation.load(Ordering::Acquire) == 0 || in_flight < PROBATION_CALLS as usize)
    }

    /// Admits a call although no instance takes calls: one a second after five failures in a row.
    ///
    /// # Errors
    /// The time until the next call is admitted.
    pub(crate) fn admit_anyway(&self, now: Duration) -> Result<(), Duration> {
        self.failures.admit(|| now)
    }

    /// Returns its state.
    pub(crate) fn state(&self) -> InstanceBreakerState {
        if self.is_open() {
            InstanceBreakerState::Open
        } else if self.probation.load(Ordering::Acquire) > 0 {
            InstanceBreakerState::HalfOpen
        } else {
            InstanceBreakerState::Closed
        }
    }

    /// True while it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// True after five failures in a row: calls that can go nowhere else fail at once.
    pub(crate) fn fails_at_once(&self) -> bool {
        self.failures.is_open()
    }

    /// Returns the times that it opened since it was last closed.
    pub(crate) fn openings(&self) -> u32 {
        self.openings.load(Ordering::Acquire)
    }

    /// Returns the time at which it opened or ceased to be open last.
    pub(crate) fn changed(&self) -> Option<Duration> {
        self.changed.get()
    }

    /// Records an answer of the instance at `now`. True if it opened before and is half open now.
    pub(crate) fn record_success(&self, now: Duration) -> bool {
        self.failures.record_success(now);
        if self.is_open() {
            return self.half_open(now);
        }
        let less = |left: u32| left.checked_sub(1);
        let before = self
            .probation
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        if before == Ok(1) {
            self.openings.store(0, Ordering::Release);
        }
        false
    }

    /// Records a sign of life at `now` that is no answer to a further call.
    pub(crate) fn record_life(&self, now: Duration) {
        self.failures.record_life(now);
    }

    /// Lets a few calls through from `now` on. True if it was open.
    pub(crate) fn half_open(&self, now: Duration) -> bool {
        self.probation.store(PROBATION_CALLS, Ordering::Release);
        self.failures.record_success(now);
        let was_open = self.open.swap(false, Ordering::AcqRel);
        if was_open {
            self.changed.set(now);
        }
        was_open
    }

    /// Begins an attempt.
    pub(crate) fn begin(&self) -> AttemptStart {
        self.failures.begin()
    }

    /// Records at `now` that the connection of an attempt was lost before the answer. It counts as
    /// for the breaker of a server with one URL. True if the breaker opens by it.
    pub(crate) fn record_lost(&self, now: Duration, start: AttemptStart) -> bool {
        self.failures.record_lost(now, start) && self.open_after_failure(now, false)
    }

    /// Records a failure at `now`. `unreachable` means that no connection could be opened. True if
    /// the breaker opens by it.
    pub(crate) fn record_failure(&self, now: Duration, unreachable: bool) -> bool {
        self.failures.record_unreached(now);
        self.open_after_failure(now, unreachable)
    }

    /// Records at `now` that a call passed its deadline after this `silence`. It counts if the
    /// instance showed no life at all for the time `limit`. True if the breaker opens by it.
    pub(crate) fn record_silence(&self, now: Duration, silence: Duration, limit: Duration) -> bool {
        self.failures.record_silence(now, silence, limit) && self.open_after_failure(now, false)
    }

    fn open_after_failure(&self, now: Duration, unreachable: bool) -> bool {
        let in_probation = self.probation.swap(0, Ordering::AcqRel) > 0;
        let opens = unreachable || in_probation || self.failures.is_open();
        let opened = opens && !self.open.swap(true, Ordering::AcqRel);
        if opened {
            self.changed.set(now);
            self.openings.fetch_add(1, Ordering::AcqRel);
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn opens_at_a_refused_connection_or_after_five_failures() {
        let breaker = InstanceBreaker::default();
        for _ in 0..4 {
            assert!(!breaker.record_failure(S, false));
        }
        assert!(breaker.takes_call(100));
        assert!(breaker.record_failure(S, false), "the fifth");
        assert!(!breaker.takes_call(0) && breaker.fails_at_once());
        assert_eq!(breaker.admit_anyway(S), Err(S));
        assert_eq!(breaker.admit_anyway(2 * S), Ok(()));
        let breaker = InstanceBreaker::default();
        assert!(breaker.record_failure(S, true));
        assert!(!breaker.record_failure(S, true), "it is open already");
        assert!(!breaker.takes_call(0) && !breaker.fails_at_once());
        assert_eq!(breaker.admit_anyway(S), Ok(()));
    }

    #[test]
    fn half_open_breaker_lets_three_calls_through_and_closes_after_three_answers() {
        let breaker = InstanceBreaker::default();
        breaker.record_failure(S, true);
        assert!(breaker.half_open(S));
        assert_eq!(breaker.state(), InstanceBreakerState::HalfOpen);
        assert!(breaker.takes_call(2) && !breaker.takes_call(3));
        breaker.record_success(S);
        assert!(breaker.record_failure(S, false), "one failure opens it");
        assert_eq!(breaker.openings(), 2);
        assert!(breaker.record_success(S), "an answer of an earlier call");
        for _ in 0..3 {
            assert_eq!(breaker.state(), InstanceBreakerState::HalfOpen);
            assert!(!breaker.record_success(S));
        }
        assert_eq!(
            (breaker.state(), breaker.openings()),
            (InstanceBreakerState::Closed, 0)
        );
        assert!(breaker.takes_call(100));
    }
}
