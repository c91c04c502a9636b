//! The backoff of an attempt that keeps failing: full jitter between zero and a ceiling that
//! doubles from 100 ms to 30 s. Sans-IO: time and randomness are arguments.
//!
//! Used if an attempt is costly for the other side: opening a session, starting a process, probing
//! the era. A stream or a process that ended is never reopened at once, even if the server asks for
//! that: see [`least_wait`].

use std::time::Duration;

use weir_core::Failure;
use weir_core::port::{Random, doubled, full_jitter, half_jitter};

const FIRST_CEILING: Duration = Duration::from_millis(100);
const MAX_CEILING: Duration = Duration::from_secs(30);
/// The first and the last ceiling after attempts without an answer.
const FIRST_SILENCE_CEILING: Duration = Duration::from_secs(60);
const MAX_SILENCE_CEILING: Duration = Duration::from_secs(1_800);

/// The texts of the last failure.
#[derive(Clone, Debug)]
pub struct LastAttemptFailure {
    /// The text for clients.
    pub message: String,
    /// The text for operators.
    pub cause: String,
}

/// The backoff of one kind of attempt.
#[derive(Debug, Default)]
pub struct RetryBackoff {
    failures: u32,
    not_before: Duration,
    /// The last failure, for callers that come while no attempt is made.
    why: Option<LastAttemptFailure>,
}

impl RetryBackoff {
    /// Admits an attempt at `now`.
    ///
    /// # Errors
    /// The time to wait.
    pub fn admit(&self, now: Duration) -> Result<(), Duration> {
        if self.failures == 0 || now >= self.not_before {
            Ok(())
        } else {
            Err(self.not_before - now)
        }
    }

    /// True if the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns the last failure, if it was kept.
    pub fn last_failure(&self) -> Option<LastAttemptFailure> {
        self.why.clone()
    }

    /// Keeps the texts of the last failure.
    pub fn keep_failure(&mut self, failure: &Failure) {
        self.why = Some(LastAttemptFailure {
            message: failure.message().to_owned(),
            cause: failure.cause(),
        });
    }

    /// Notes a success.
    pub fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Notes a failure at `now`.
    pub fn record_failure(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = least_wait(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + full_jitter(ceiling, random);
    }

    /// Notes an attempt at `now` that the other side left unanswered for long, which it is likely
    /// to do again: the wait is at least half of a ceiling that doubles from one minute to half an
    /// hour.
    pub fn record_silence(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = doubled(FIRST_SILENCE_CEILING, self.failures, MAX_SILENCE_CEILING);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + half_jitter(ceiling, random);
    }

    /// Notes that a stream or process that was begun in vain ended at `now`: the wait is at least
    /// half of its ceiling, and never under 100 ms.
    pub fn record_end(&mut self, now: Duration, random: &dyn Random) {
        let ceiling = least_wait(self.failures);
        self.record_failure(now, random);
        self.not_before = self.not_before.max(now + (ceiling / 2).max(FIRST_CEILING));
    }
}

/// Returns the least wait before reopening a stream or process that ended so many times in a row:
/// 100 ms, doubled each time, up to 30 s.
pub fn least_wait(times: u32) -> Duration {
    doubled(FIRST_CEILING, times, MAX_CEILING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use weir_testkit::FixedRandom;

    use super::*;

    #[test]
    fn unanswered_attempts_are_repeated_after_half_a_minute_to_half_an_hour() {
        let mut pace = RetryBackoff::default();
        let mut waits = Vec::new();
        for _ in 0..7 {
            pace.record_silence(Duration::ZERO, &FixedRandom(0));
            let wait = pace.admit(Duration::ZERO).unwrap_err();
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 900, 900]);
    }

    // Proves E11.
    #[test]
    fn backs_off_from_100_ms_to_30_s_with_full_jitter() {
        let mut pace = RetryBackoff::default();
        let mut ceilings = Vec::new();
        for _ in 0..11 {
            pace.record_failure(Duration::ZERO, &FixedRandom(255));
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
        pace.record_failure(Duration::ZERO, &FixedRandom(0));
        assert_eq!(
            pace.admit(Duration::ZERO),
            Ok(()),
            "full jitter goes down to nothing"
        );
        pace.record_success();
        assert_eq!(pace.admit(Duration::ZERO), Ok(()));
    }

    #[test]
    fn reopening_waits_at_least_100_ms_that_double() {
        let mut pace = RetryBackoff::default();
        let waits = [(); 5].map(|()| {
            pace.record_end(Duration::ZERO, &FixedRandom(0));
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
