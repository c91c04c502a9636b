//! The size of leases: the tokens that a replica takes ahead of its requests.

use std::time::Duration;

use weir_core::port::Rate;

/// Requests a second from which on replicas take tokens ahead. Below it a lease would be a large part
/// of the rate, and a trip for each request is cheap.
const LEASED_FROM: f64 = 100.0;
/// The shortest time for which a lease lasts at the full rate: longer than a trip to the store, so
/// that the next lease arrives before this one is used up.
const MIN_LEASE_SECONDS: f64 = 0.05;
/// The longest time for which a lease lasts at the full rate, and the longest pause.
const MAX_LEASE_SECONDS: f64 = 0.5;
/// The leases of all replicas together are this part of the burst, unless they would be too short.
const BURST_PART: f64 = 4.0;

/// The leases of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePlan {
    /// The tokens that a replica holds beyond those that its requests wait for; 0 if it asks for each
    /// request.
    pub size: u32,
    /// The mark for the next lease: it is fetched once fewer tokens are left.
    pub low_mark: u32,
    /// The least time between two trips once the bucket is empty. Meanwhile it fills, at most by half,
    /// so one trip brings many tokens, and its burst loses no token.
    pub pause: Duration,
    /// The replicas that share the rate.
    pub replicas: usize,
}

impl LeasePlan {
    /// The leases of a rate that so many replicas share.
    pub fn of(rate: &Rate, replicas: usize) -> Self {
        let per_second = f64::from(rate.count.get()) / rate.per.as_secs_f64();
        if per_second < LEASED_FROM {
            return Self {
                size: 0,
                low_mark: 0,
                pause: Duration::ZERO,
                replicas,
            };
        }
        let burst = f64::from(rate.burst.get());
        let size = (burst / BURST_PART / replicas.max(1) as f64)
            .max(per_second * MIN_LEASE_SECONDS)
            .min(per_second * MAX_LEASE_SECONDS)
            .min(burst / 2.0);
        // The cast keeps the value: it is at most the burst.
        let size = size as u32;
        Self {
            size,
            low_mark: size / 2,
            pause: Duration::from_secs_f64((burst / 2.0 / per_second).min(MAX_LEASE_SECONDS)),
            replicas,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn plan(count: u32, seconds: u64, burst: u32, replicas: usize) -> LeasePlan {
        let rate = Rate {
            count: count.try_into().unwrap(),
            per: Duration::from_secs(seconds),
            burst: burst.try_into().unwrap(),
        };
        LeasePlan::of(&rate, replicas)
    }

    #[test]
    fn lease_is_a_part_of_the_burst_and_bounded_by_time() {
        let sizes = [
            (plan(100, 1, 100, 1), 25),
            (plan(100, 1, 100, 3), 8),
            (plan(6000, 60, 100, 3), 8),
            // At least what the rate gives in 50 ms, at most in half a second.
            (plan(1000, 1, 1000, 50), 50),
            (plan(100, 1, 10_000, 3), 50),
            // At most half the burst.
            (plan(1000, 1, 10, 1), 5),
            (plan(1000, 1, 1, 1), 0),
            (plan(1_000_000, 1, u32::MAX, 1), 500_000),
        ];
        for (plan, size) in sizes {
            assert_eq!((plan.size, plan.low_mark), (size, size / 2), "{plan:?}");
        }
    }

    #[test]
    fn small_rate_is_asked_for_each_request() {
        for plan in [
            plan(99, 1, 1000, 1),
            plan(5999, 60, 1000, 1),
            plan(1, 86_400, 1, 3),
        ] {
            assert_eq!((plan.size, plan.pause), (0, Duration::ZERO));
        }
    }

    #[test]
    fn bucket_fills_at_most_by_half_in_a_pause() {
        assert_eq!(plan(100, 1, 100, 3).pause, Duration::from_millis(500));
        assert_eq!(plan(100, 1, 10, 3).pause, Duration::from_millis(50));
        assert_eq!(plan(100, 1, 10_000, 3).pause, Duration::from_millis(500));
    }
}
