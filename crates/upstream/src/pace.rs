//! How often something that keeps failing is tried again: full jitter between nothing and a ceiling
//! that doubles from 100 ms to 30 s. Sans-IO: time and randomness are arguments.
//!
//! Used where an attempt is costly for the other side: opening a session, starting a process,
//! asking for the era. A stream or a process that ended is never taken up again at once, whatever
//! the server asks for: see [`least`].

use std::time::Duration;

use weir_core::Failure;
use weir_core::port::Random;

const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(30);

/// What the last failure said.
#[derive(Clone, Debug)]
pub(crate) struct LastFailure {
    /// To clients.
    pub(crate) message: String,
    /// To operators.
    pub(crate) cause: String,
}

/// The pace of one thing that may fail.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
    not_before: Duration,
    /// The last failure, for those who come while nothing is tried.
    why: Option<LastFailure>,
}

impl Pace {
    /// Asks to try at `now`.
    ///
    /// # Errors
    /// How long to wait.
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

    /// The last failure, if it was kept.
    pub(crate) fn last_failure(&self) -> Option<LastFailure> {
        self.why.clone()
    }

    /// Keeps what the last failure said.
    pub(crate) fn because(&mut self, failure: &Failure) {
        self.why = Some(LastFailure {
            message: failure.message().to_owned(),
            cause: failure.cause(),
        });
    }

    /// It worked.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// It failed at `now`.
    pub(crate) fn failed(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = least(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + jitter(ceiling, random);
    }

    /// It ended at `now`, and was begun in vain: the wait is at least half of its ceiling, and
    /// never under 100 ms.
    pub(crate) fn ended(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = least(self.failures);
        self.failed(now, random);
        self.not_before = self.not_before.max(now + (ceiling / 2).max(FIRST));
    }
}

/// The least wait before something is taken up again that ended so many times in a row: 100 ms,
/// doubled each time, up to 30 s.
pub(crate) fn least(times: u32) -> Duration {
    FIRST.saturating_mul(1 << times.min(16)).min(LAST)
}

/// A random part of `ceiling`, all of it at the most.
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
