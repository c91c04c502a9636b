//! The era of a server without an answer to the probe. It is called as a legacy server meanwhile,
//! since some of those do not answer unknown methods. A lost connection is no proof of an era, so
//! the server is probed again beside its calls.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::pace::least;

/// The due time while no probe is pending.
const NEVER: u64 = u64::MAX;
/// The number of failures that gives the first wait: 800 ms.
const FIRST: u32 = 3;

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
            due: AtomicU64::new(NEVER),
            times: AtomicU32::new(0),
        }
    }
}

impl EraGuess {
    /// Ends the guess, because the server has answered.
    pub(super) fn settled(&self) {
        self.due.store(NEVER, Ordering::Release);
        self.times.store(0, Ordering::Relaxed);
    }

    /// Notes a probe without an answer: the next one follows after a wait that doubles up to 30 s.
    pub(super) fn unanswered(&self, now: u64) {
        let times = self
            .times
            .fetch_add(1, Ordering::Relaxed)
            .min(u32::from(u16::MAX));
        let wait = u64::try_from(least(FIRST + times).as_millis()).unwrap_or(NEVER);
        self.due.store(now.saturating_add(wait), Ordering::Release);
    }

    /// Returns the number of unanswered probes in a row.
    pub(super) fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }

    /// True for the one caller that is to probe now.
    pub(super) fn is_due(&self, now: impl FnOnce() -> u64) -> bool {
        let due = self.due.load(Ordering::Acquire);
        due != NEVER
            && due <= now()
            && self
                .due
                .compare_exchange(due, NEVER, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_by_one_at_a_time_after_waits_that_double_and_not_once_it_answered() {
        let guess = EraGuess::default();
        assert!(!guess.is_due(|| u64::MAX));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            guess.unanswered(now);
            let due = guess.due.load(Ordering::Relaxed);
            assert!(!guess.is_due(|| due - 1));
            assert!(
                guess.is_due(|| due) && !guess.is_due(|| due),
                "another asks already"
            );
            waits.push(due - now);
            now = due;
        }
        assert_eq!(
            waits,
            [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]
        );
        guess.unanswered(now);
        guess.settled();
        assert!(!guess.is_due(|| u64::MAX));
        guess.unanswered(0);
        assert!(guess.is_due(|| 800), "it begins anew");
    }
}
