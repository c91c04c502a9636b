//! The circuit breaker of one upstream: after some failures in a row to reach it, calls fail at once, and one a second
//! goes through to see whether it is back. Sans-IO: the time is an argument.
//!
//! It counts connections that were not made and deadlines that passed. What a server answers, errors of tools included,
//! is a sign of life.

use std::sync::Mutex;
use std::time::Duration;

/// Failures in a row that open it.
const FAILURES: u32 = 5;
/// Between two calls that are let through while it is open.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The breaker.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// When the next call may go through, while open.
    next_probe: Duration,
}

impl Breaker {
    /// Asks to go through at `now`.
    ///
    /// # Errors
    /// How long until the next call is let through.
    pub(crate) fn admit(&self, now: Duration) -> Result<(), Duration> {
        let mut state = self.lock();
        if state.failures < FAILURES {
            return Ok(());
        }
        if now < state.next_probe {
            return Err(state.next_probe - now);
        }
        state.next_probe = now + PROBE_EVERY;
        Ok(())
    }

    /// The server answered something.
    pub(crate) fn succeeded(&self) {
        self.lock().failures = 0;
    }

    /// The server was not reached, or a deadline passed, at `now`.
    pub(crate) fn failed(&self, now: Duration) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        state.next_probe = now + PROBE_EVERY;
    }

    /// True while calls fail at once.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().failures >= FAILURES
    }

    /// True if the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.lock().failures > 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Counters stay meaningful whatever panicked while they were held.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
