//! The era of a server without an answer to the probe. It is called as a legacy server meanwhile,
//! since some of those do not answer unknown methods. A lost connection is no proof of an era, so
//! the server is probed again beside its calls.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weir_core::instant::millis;
use weir_upstream_core::retry_backoff::least_wait;

/// The due time while no probe is pending.
const NOT_DUE: u64 = u64::MAX;
/// The number of failures that gives the first wait: 800 ms.
const FIRST_WAIT_STEP: u32 = 3;

/// The time of the next probe of a server with a guessed era.
#[derive(Debug)]
pub(super) struct EraGuess {
    /// The due time, in milliseconds of the clock.
    due: AtomicU64,
    times: AtomicU32,
}

impl Default for EraGuess {
    fn default() -> Self {
        Self {
            due: AtomicU64::new(NOT_DUE),
            times: AtomicU32::new(0),
        }
    }
}

impl EraGuess {
    /// Ends the guess, because the server has answered.
    pub(super) fn end_guess(&self) {
        self.due.store(NOT_DUE, Ordering::Release);
        self.times.store(0, Ordering::Relaxed);
    }

    /// Notes a probe without an answer: the next one follows after a wait that doubles up to 30 s.
    pub(super) fn record_unanswered(&self, now: u64) {
        let times = self.times.fetch_add(1, Ordering::Relaxed);
        self.set_due(now, times);
    }

    /// Repeats the wait of a guess, because the due probe was not made, or failed without a sign of
    /// an era.
    pub(super) fn postpone(&self, now: u64) {
        if let Some(times) = self.times().checked_sub(1) {
            self.set_due(now, times);
        }
    }

    fn set_due(&self, now: u64, times: u32) {
        let times = times.min(u32::from(u16::MAX));
        let wait = millis(least_wait(FIRST_WAIT_STEP + times));
        self.due.store(now.saturating_add(wait), Ordering::Release);
    }

    /// Returns the number of unanswered probes in a row.
    pub(super) fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }

    /// True for the one caller that is to probe now.
    pub(super) fn take_due(&self, now: impl FnOnce() -> u64) -> bool {
        let due = self.due.load(Ordering::Acquire);
        due != NOT_DUE
            && due <= now()
            && self
                .due
                .compare_exchange(due, NOT_DUE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessed_era_is_probed_by_one_caller_after_doubling_waits() {
        let guess = EraGuess::default();
        assert!(!guess.take_due(|| u64::MAX));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            guess.record_unanswered(now);
            let due = guess.due.load(Ordering::Relaxed);
            assert!(!guess.take_due(|| due - 1));
            assert!(
                guess.take_due(|| due) && !guess.take_due(|| due),
                "another asks already"
            );
            waits.push(due - now);
            now = due;
        }
        assert_eq!(
            waits,
            [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]
        );
        guess.record_unanswered(now);
        assert!(guess.take_due(|| now + 30_000));
        guess.postpone(now + 30_000);
        assert!(!guess.take_due(|| now + 59_999) && guess.take_due(|| now + 60_000));
        guess.end_guess();
        guess.postpone(now);
        assert!(!guess.take_due(|| u64::MAX), "it is no guess any more");
        guess.record_unanswered(0);
        assert!(guess.take_due(|| 800), "it begins anew");
    }
}
