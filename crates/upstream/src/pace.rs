//! The backoff of an attempt that keeps failing: full jitter between zero and a ceiling that
//! doubles from 100 ms to 30 s. Sans-IO: time and randomness are arguments.
//!
//! Used if an attempt is costly for the other side: opening a session, starting a process, probing
//! the era. A stream or a process that ended is never reopened at once, even if the server asks for
//! that: see [`least`].

use std::time::Duration;

use weir_core::Failure;
use weir_core::port::Random;

const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(30);

/// The texts of the last failure.
#[derive(Clone, Debug)]
pub(crate) struct LastFailure {
    /// The text for clients.
    pub(crate) message: String,
    /// The text for operators.
    pub(crate) cause: String,
}

/// The backoff of one kind of attempt.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
    not_before: Duration,
    /// The last failure, for callers that come while no attempt is made.
    why: Option<LastFailure>,
}

impl Pace {
    /// Admits an attempt at `now`.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn admit(&self, now: Duration) -> Result<(), Duration> {
        if self.failures == 0 || now >= self.not_before {
            Ok(())
        } else {
            Err(self.not_before - now)
        }
    }

    /// True if the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns the last failure, if it was kept.
    pub(crate) fn last_failure(&self) -> Option<LastFailure> {
        self.why.clone()
    }

    /// Keeps the texts of the last failure.
    pub(crate) fn because(&mut self, failure: &Failure) {
        self.why = Some(LastFailure {
            message: failure.message().to_owned(),
            cause: failure.cause(),
        });
    }

    /// Notes a success.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Notes a failure at `now`.
    pub(crate) fn failed(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = least(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + jitter(ceiling, random);
    }

    /// Notes that a stream or process that was begun in vain ended at `now`: the wait is at least
    /// half of its ceiling, and never under 100 ms.
    pub(crate) fn ended(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = least(self.failures);
        self.failed(now, random);
        self.not_before = self.not_before.max(now + (ceiling / 2).max(FIRST));
    }
}

/// Returns the least wait before reopening a stream or process that ended so many times in a row:
/// 100 ms, doubled each time, up to 30 s.
pub(crate) fn least(times: u32) -> Duration {
    FIRST.saturating_mul(1 << times.min(16)).min(LAST)
}

/// Returns a random part of `ceiling`.
pub(crate) fn jitter(ceiling: Duration, random: &dyn Random) -> Duration {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    ceiling.mul_f64(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Always(u8);
    impl Random for Always {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }

    #[test]
    fn e11_backs_off_from_100_ms_to_30_s_with_full_jitter() {
        let mut pace = Pace::default();
        let mut ceilings = Vec::new();
        for _ in 0..11 {
            pace.failed(Duration::ZERO, &Always(255));
            ceilings.push(
                pace.admit(Duration::ZERO)
                    .err()
                    .map(|wait| wait.as_millis()),
            );
        }
        let expected = [
            100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
        ]
        .map(Some);
        assert_eq!(ceilings, expected);
        pace.failed(Duration::ZERO, &Always(0));
        assert_eq!(
            pace.admit(Duration::ZERO),
            Ok(()),
            "full jitter goes down to nothing"
        );
        pace.succeeded();
        assert_eq!(pace.admit(Duration::ZERO), Ok(()));
    }

    #[test]
    fn what_ended_is_taken_up_again_after_at_least_100_ms_that_double() {
        let mut pace = Pace::default();
        let waits = [(); 5].map(|()| {
            pace.ended(Duration::ZERO, &Always(0));
            pace.admit(Duration::ZERO)
                .err()
                .map(|wait| wait.as_millis())
        });
        assert_eq!(
            waits,
            [100, 100, 200, 400, 800].map(Some),
            "half of the ceiling, also where chance says nothing"
        );
    }
}
