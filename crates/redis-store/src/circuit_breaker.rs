//! The circuit breaker of the shared store: while it fails, commands fail at once, so that no
//! request waits its time limit for a store that does not answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use weir_core::port::{Backoff, Random};

use crate::pauses::next_pause;

/// Failures in a row that open the breaker.
const MAX_FAILURES: u32 = 5;
/// The bound of the first pause, and of the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Lets commands pass while they succeed. After some failures in a row it pauses them, and then lets
/// one pass as a probe.
#[derive(Debug)]
pub(crate) struct CircuitBreaker(Mutex<BreakerState>);

#[derive(Debug)]
struct BreakerState {
    phase: BreakerPhase,
    /// The number of the last probe.
    probes: u64,
    failures: u32,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerPhase {
    Closed,
    OpenUntil(Instant),
    /// The probe of this number runs.
    Probing(u64),
}

/// The permission for one command, to report its result to.
#[derive(Debug)]
pub(crate) struct BreakerPass<'a> {
    breaker: &'a CircuitBreaker,
    /// The number of the probe that it is for. Another probe may run before it ends, if the breaker
    /// was closed meanwhile.
    probe: Option<u64>,
}

impl CircuitBreaker {
    /// A closed breaker.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BreakerState {
            phase: BreakerPhase::Closed,
            probes: 0,
            failures: 0,
            backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
        }))
    }

    /// Lets a command pass; `None` during a pause.
    pub(crate) fn admit(&self) -> Option<BreakerPass<'_>> {
        let mut state = self.0.lock();
        let probe = match state.phase {
            BreakerPhase::Closed => None,
            BreakerPhase::OpenUntil(end) if end <= Instant::now() => {
                state.probes += 1;
                state.phase = BreakerPhase::Probing(state.probes);
                Some(state.probes)
            }
            BreakerPhase::OpenUntil(_) | BreakerPhase::Probing(_) => return None,
        };
        Some(BreakerPass {
            breaker: self,
            probe,
        })
    }

    /// Closes it: there is a new connection.
    pub(crate) fn reset(&self) {
        let mut state = self.0.lock();
        state.phase = BreakerPhase::Closed;
        state.failures = 0;
        state.backoff.reset();
    }
}

impl BreakerPass<'_> {
    /// Reports that the command succeeded.
    pub(crate) fn succeed(mut self) {
        self.probe = None;
        self.breaker.reset();
    }

    /// Reports that the command failed; true if that opened the breaker.
    pub(crate) fn fail(mut self, random: &dyn Random) -> bool {
        let probe = self.probe.take();
        let mut state = self.breaker.0.lock();
        state.failures = state.failures.saturating_add(1);
        let opens = match state.phase {
            BreakerPhase::Closed => state.failures >= MAX_FAILURES,
            BreakerPhase::Probing(running) => probe == Some(running),
            BreakerPhase::OpenUntil(_) => false,
        };
        if opens {
            let pause = next_pause(&mut state.backoff, random);
            state.phase = BreakerPhase::OpenUntil(Instant::now() + pause);
        }
        opens
    }
}

/// A probe that was given up without a result leaves its place to the next command.
impl Drop for BreakerPass<'_> {
    fn drop(&mut self) {
        if let Some(probe) = self.probe {
            let mut state = self.breaker.0.lock();
            if state.phase == BreakerPhase::Probing(probe) {
                state.phase = BreakerPhase::OpenUntil(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_testkit::FakeRandom;

    use super::*;

    fn open_breaker() -> CircuitBreaker {
        let breaker = CircuitBreaker::new();
        fail_until_open(&breaker);
        breaker
    }

    fn fail_until_open(breaker: &CircuitBreaker) {
        for n in 1..=MAX_FAILURES {
            assert_eq!(
                breaker.admit().unwrap().fail(&FakeRandom::new(1)),
                n == MAX_FAILURES
            );
        }
        assert!(breaker.admit().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn open_breaker_lets_one_probe_pass_after_its_pause() {
        let breaker = open_breaker();
        tokio::time::advance(MAX_PAUSE).await;
        let probe = breaker.admit().unwrap();
        assert!(breaker.admit().is_none());
        assert!(probe.fail(&FakeRandom::new(1)));
        assert!(breaker.admit().is_none());
        tokio::time::advance(MAX_PAUSE).await;
        breaker.admit().unwrap().succeed();
        assert!(breaker.admit().is_some() && breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_probe_leaves_its_place_to_the_next() {
        let breaker = open_breaker();
        tokio::time::advance(MAX_PAUSE).await;
        drop(breaker.admit().unwrap());
        assert!(breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_an_earlier_probe_lets_no_second_one_pass() {
        let ends: [fn(BreakerPass<'_>); 2] = [
            |earlier| drop(earlier),
            |earlier| assert!(!earlier.fail(&FakeRandom::new(1))),
        ];
        for end in ends {
            let breaker = open_breaker();
            tokio::time::advance(MAX_PAUSE).await;
            let earlier = breaker.admit().unwrap();
            breaker.reset();
            fail_until_open(&breaker);
            tokio::time::advance(MAX_PAUSE).await;
            let probe = breaker.admit().unwrap();
            end(earlier);
            assert!(breaker.admit().is_none());
            assert!(probe.fail(&FakeRandom::new(1)));
        }
    }

    #[tokio::test]
    async fn success_between_failures_keeps_it_closed() {
        let breaker = CircuitBreaker::new();
        for _ in 0..3 {
            for _ in 1..MAX_FAILURES {
                assert!(!breaker.admit().unwrap().fail(&FakeRandom::new(1)));
            }
            breaker.admit().unwrap().succeed();
        }
    }
}
