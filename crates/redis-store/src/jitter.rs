//! Random waits, so that many replicas do not act at the same moment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{Random, random_share};

/// The shortest wait of a backoff, so that a row of low draws is no busy loop.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// Draws a duration between zero and `most`, evenly.
pub(crate) fn full_jitter(random: &dyn Random, most: Duration) -> Duration {
    most.mul_f64(random_share(random))
}

/// Waits between attempts: each is drawn below a bound that doubles with every failure.
pub(crate) struct Backoff {
    random: Arc<dyn Random>,
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits below `first` after one failure, and below `most` after many.
    pub(crate) fn new(random: Arc<dyn Random>, first: Duration, most: Duration) -> Self {
        Self {
            random,
            first,
            most,
            failures: 0,
        }
    }

    /// Returns the wait after one more failure.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        full_jitter(&*self.random, doubled.min(self.most)).max(LEAST_WAIT)
    }

    /// Begins anew after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff")
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use weir_testkit::FakeRandom;

    use super::*;

    #[test]
    fn waits_grow_to_their_bound_and_begin_anew() {
        let (first, most) = (Duration::from_millis(50), Duration::from_secs(2));
        let mut backoff = Backoff::new(Arc::new(FakeRandom::new(1)), first, most);
        assert!(backoff.next_wait() <= first);
        let waits: Vec<_> = (0..100).map(|_| backoff.next_wait()).collect();
        assert!(
            waits
                .iter()
                .all(|wait| *wait <= most && *wait >= LEAST_WAIT)
        );
        assert!(waits.iter().any(|wait| *wait > most / 2));
        backoff.reset();
        assert!(backoff.next_wait() <= first);
    }
}
