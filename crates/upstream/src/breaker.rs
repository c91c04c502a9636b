//! The circuit breaker of one upstream: after some failures in a row to reach it, calls fail at
//! once, and one a second goes through to see whether it is back. Sans-IO: the time is an argument.
//!
//! It counts connections that were not made and deadlines that passed. What a server answers,
//! errors of tools included, is a sign of life.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Failures in a row that open it.
const FAILURES: u32 = 5;
/// Between two calls that are let through while it is open.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The breaker. While all is well a call costs it two loads.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    /// When the next call may go through, while open.
    next_probe: Mutex<Duration>,
}

impl Breaker {
    /// Asks to go through at `now`.
    ///
    /// # Errors
    /// How long until the next call is let through.
    pub(crate) fn admit(&self, now: Duration) -> Result<(), Duration> {
        if !self.is_open() {
            return Ok(());
        }
        let mut next_probe = self.lock();
        if now < *next_probe {
            return Err(*next_probe - now);
        }
        *next_probe = now + PROBE_EVERY;
        Ok(())
    }

    /// The server answered something.
    pub(crate) fn succeeded(&self) {
        if self.is_failing() {
            self.failures.store(0, Ordering::Release);
        }
    }

    /// The server was not reached, or a deadline passed, at `now`.
    pub(crate) fn failed(&self, now: Duration) {
        *self.lock() = now + PROBE_EVERY;
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// True while calls fail at once.
    pub(crate) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Acquire) >= FAILURES
    }

    /// True if the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Acquire) > 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Duration> {
        // A time stays meaningful whatever panicked while it was held.
        self.next_probe
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn e03_opens_after_five_failures_in_a_row_and_probes_once_a_second() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            breaker.failed(S);
        }
        assert_eq!(breaker.admit(S), Ok(()));
        breaker.succeeded();
        for _ in 0..5 {
            assert!(!breaker.is_open());
            breaker.failed(S);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.admit(S), Err(S));
        assert_eq!(breaker.admit(S + S / 2), Err(S / 2));
        assert_eq!(breaker.admit(2 * S), Ok(()), "one goes through");
        assert_eq!(breaker.admit(2 * S), Err(S), "and no second one");
        breaker.succeeded();
        assert_eq!(breaker.admit(2 * S), Ok(()));
    }
}
