//! The circuit breaker of one upstream. After some failures in a row to reach the server, calls
//! fail at once, and one call a second goes through as a probe. Sans-IO: the time is an argument.
//!
//! It counts failed connections and passed deadlines. Every answer of the server, errors of tools
//! included, is a sign of life.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The failures in a row that open the breaker.
const FAILURES_TO_OPEN: u32 = 5;
/// The time between two probes while the breaker is open.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The breaker. A call to a healthy upstream costs it two loads.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    /// The time of the next probe, while the breaker is open.
    next_probe: Mutex<Duration>,
}

impl Breaker {
    /// Admits a call. `clock` returns the time, which only an open breaker needs.
    ///
    /// # Errors
    /// The time until the next call is let through.
    pub(crate) fn admit(&self, clock: impl FnOnce() -> Duration) -> Result<(), Duration> {
        if !self.is_open() {
            return Ok(());
        }
        let now = clock();
        let mut next_probe = self.lock();
        if now < *next_probe {
            return Err(*next_probe - now);
        }
        *next_probe = now + PROBE_INTERVAL;
        Ok(())
    }

    /// Notes that the server answered.
    pub(crate) fn record_success(&self) {
        if self.is_failing() {
            self.failures.store(0, Ordering::Release);
        }
    }

    /// Notes that the server was not reached, or that a deadline passed, at `now`.
    pub(crate) fn record_failure(&self, now: Duration) {
        *self.lock() = now + PROBE_INTERVAL;
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// True while the breaker is open and calls fail at once.
    pub(crate) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Acquire) >= FAILURES_TO_OPEN
    }

    /// True if the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Acquire) > 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Duration> {
        // The time stays meaningful after a panic of its holder.
        self.next_probe
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    // Proves E03.
    #[test]
    fn opens_after_five_failures_in_a_row_and_probes_once_a_second() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            breaker.record_failure(S);
        }
        assert_eq!(breaker.admit(|| S), Ok(()));
        breaker.record_success();
        for _ in 0..5 {
            assert!(!breaker.is_open());
            breaker.record_failure(S);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.admit(|| S), Err(S));
        assert_eq!(breaker.admit(|| S + S / 2), Err(S / 2));
        assert_eq!(breaker.admit(|| 2 * S), Ok(()), "one goes through");
        assert_eq!(breaker.admit(|| 2 * S), Err(S), "and no second one");
        breaker.record_success();
        assert_eq!(breaker.admit(|| 2 * S), Ok(()));
    }
}
