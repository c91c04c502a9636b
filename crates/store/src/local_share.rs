//! The share of this replica in a bucket while the shared store does not answer.

use std::num::NonZeroU32;
use std::time::Duration;

use weir_core::port::Rate;

/// A bucket of this replica alone, by the generic cell rate algorithm: its rate and its burst are
/// those of the shared one, divided by the number of replicas. It begins full. Tokens of the shared
/// bucket are taken out of it, too, so that no client gets its burst again by an outage.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalShare {
    /// The time at which the bucket is full, in nanoseconds of the monotonic clock.
    full_at: u128,
    /// The tokens that were taken here since the shared bucket was last asked.
    owed: u32,
}

/// The nanoseconds of one token, and the tokens of a full bucket.
struct ShareSize {
    interval: u128,
    burst: u128,
}

impl ShareSize {
    fn of(rate: &Rate, replicas: usize) -> Self {
        let replicas = replicas.max(1) as u128;
        let interval = rate.per.as_nanos() * replicas / u128::from(rate.count.get());
        Self {
            interval: interval.max(1),
            burst: (u128::from(rate.burst.get()) / replicas).max(1),
        }
    }

    /// The nanoseconds of a cost; a cost above the burst takes a full bucket.
    fn span(&self, cost: NonZeroU32) -> u128 {
        self.interval * u128::from(cost.get()).min(self.burst)
    }
}

impl LocalShare {
    /// Takes `cost`.
    ///
    /// # Errors
    /// The time until it is there.
    pub fn take(
        &mut self,
        rate: &Rate,
        replicas: usize,
        cost: NonZeroU32,
        now: Duration,
    ) -> Result<(), Duration> {
        let wait = self.wait(rate, replicas, cost, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        let span = ShareSize::of(rate, replicas).span(cost);
        self.full_at = self.full_at.max(now.as_nanos()) + span;
        self.owed = self.owed.saturating_add(cost.get());
        Ok(())
    }

    /// Takes tokens out that the shared bucket gave to this replica, as far as they are there.
    pub fn note_granted(&mut self, rate: &Rate, replicas: usize, tokens: u32, now: Duration) {
        let size = ShareSize::of(rate, replicas);
        let now = now.as_nanos();
        let full_at = self.full_at.max(now) + size.interval * u128::from(tokens);
        self.full_at = full_at.min(now + size.interval * size.burst);
    }

    /// The tokens that the shared bucket lacks: those that were taken here, as far as this bucket has
    /// not filled since.
    #[must_use]
    pub fn owed(&self, rate: &Rate, replicas: usize, now: Duration) -> u32 {
        if self.owed == 0 {
            return 0;
        }
        let missing = self.full_at.saturating_sub(now.as_nanos());
        let missing = missing.div_ceil(ShareSize::of(rate, replicas).interval);
        self.owed.min(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// Takes note of tokens that the shared bucket got.
    pub fn pay(&mut self, tokens: u32) {
        self.owed = self.owed.saturating_sub(tokens);
    }

    /// Sets the tokens that the shared bucket lacks.
    pub fn set_owed(&mut self, tokens: u32) {
        self.owed = tokens;
    }

    /// The time until `cost` is there; zero if it is there now.
    #[must_use]
    pub fn wait(&self, rate: &Rate, replicas: usize, cost: NonZeroU32, now: Duration) -> Duration {
        let size = ShareSize::of(rate, replicas);
        let now = now.as_nanos();
        let full_at = self.full_at.max(now) + size.span(cost);
        let wait = full_at.saturating_sub(now + size.interval * size.burst);
        Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn rate(count: u32, burst: u32) -> Rate {
        Rate {
            count: count.try_into().unwrap(),
            per: Duration::from_secs(1),
            burst: burst.try_into().unwrap(),
        }
    }

    #[test]
    fn share_is_the_rate_divided_by_the_replicas() {
        let rate = rate(30, 12);
        for (replicas, burst, a_second) in [(1, 12, 30), (3, 4, 10), (100, 1, 0)] {
            let mut share = LocalShare::default();
            let start = Duration::from_secs(5);
            let mut granted = |now: Duration| {
                (0..100)
                    .filter(|_| share.take(&rate, replicas, ONE, now).is_ok())
                    .count()
            };
            assert_eq!(granted(start), burst, "{replicas}");
            let later: usize = (1..=1000)
                .map(|millis| granted(start + Duration::from_millis(millis)))
                .sum();
            assert_eq!(later, a_second, "{replicas}");
        }
    }

    #[test]
    fn tokens_of_the_shared_bucket_are_taken_out_as_far_as_they_are_there() {
        let (rate, now) = (rate(20, 20), Duration::from_secs(1));
        let mut share = LocalShare::default();
        share.note_granted(&rate, 2, 4, now);
        let mut granted = |now| {
            (0..100)
                .filter(|_| share.take(&rate, 2, ONE, now).is_ok())
                .count()
        };
        assert_eq!(granted(now), 6);
        assert_eq!(granted(now + Duration::from_millis(300)), 3);
        share.note_granted(&rate, 2, 1000, now);
        let full = share.wait(&rate, 2, 10.try_into().unwrap(), now);
        assert_eq!(full, Duration::from_secs(1), "an empty bucket, and no debt");
    }

    #[test]
    fn tokens_taken_alone_are_owed_until_the_share_has_filled() {
        let (rate, now) = (rate(20, 20), Duration::from_secs(1));
        let mut share = LocalShare::default();
        share.note_granted(&rate, 2, 8, now);
        assert_eq!(share.owed(&rate, 2, now), 0, "the shared bucket has these");
        for _ in 0..2 {
            share.take(&rate, 2, ONE, now).unwrap();
        }
        assert_eq!(share.owed(&rate, 2, now), 2);
        let later = now + Duration::from_millis(900);
        assert_eq!(share.owed(&rate, 2, later), 1);
        assert_eq!(share.owed(&rate, 2, later + Duration::from_millis(100)), 0);
        assert_eq!(share.owed(&rate, 2, now), 2);
        share.pay(1);
        assert_eq!(share.owed(&rate, 2, now), 1);
        share.set_owed(0);
        assert_eq!(share.owed(&rate, 2, now), 0);
    }

    #[test]
    fn returned_wait_is_exact_and_a_large_cost_takes_a_full_bucket() {
        let (rate, cost) = (rate(10, 6), 50.try_into().unwrap());
        let mut share = LocalShare::default();
        assert_eq!(share.take(&rate, 2, cost, Duration::ZERO), Ok(()));
        let wait = share.take(&rate, 2, ONE, Duration::ZERO).unwrap_err();
        assert_eq!(wait, Duration::from_millis(200));
        let early = wait - Duration::from_nanos(1);
        assert!(share.take(&rate, 2, ONE, early).is_err());
        assert_eq!(share.take(&rate, 2, ONE, wait), Ok(()));
    }
}
