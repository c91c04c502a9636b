#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroU32;

use proptest::prelude::*;
use weir_core::port::RateUnit;
use weir_testkit::FakeClock;

use super::*;

fn some(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn rate(count: u32, per: Duration, burst: u32) -> Rate {
    Rate {
        count: some(count),
        per,
        burst: some(burst),
    }
}

fn key(number: u128) -> RateBucket {
    RateBucket {
        limit: 1,
        unit: RateUnit::Calls,
        owner: number.to_be_bytes(),
    }
}

fn table(most: usize) -> (BucketTable, FakeClock) {
    let clock = FakeClock::new();
    (BucketTable::new(most, Arc::new(clock.clone())), clock)
}

fn rates() -> impl Strategy<Value = Rate> {
    let per = prop_oneof![Just(1), Just(60), Just(3600), Just(86_400)];
    (1..5000u32, per, 1..200u32)
        .prop_map(|(count, seconds, burst)| rate(count, Duration::from_secs(seconds), burst))
}

proptest! {
    /// For all arrivals: the amount taken between any two moments is at most the burst plus the
    /// rate.
    // Proves F01.
    #[test]
    fn no_interval_grants_more_than_burst_plus_rate(
        rate in rates(),
        arrivals in prop::collection::vec((0..3_000_000_000u64, 1..20u32), 1..120),
    ) {
        let (table, clock) = table(1);
        let interval = (rate.per / rate.count.get()).as_nanos();
        let mut taken: Vec<(u128, u128)> = Vec::new();
        for (pause, cost) in arrivals {
            clock.advance(Duration::from_nanos(pause));
            let cost = some(cost).min(rate.burst);
            if table.take(key(0), &rate, cost).is_ok() {
                taken.push((clock.monotonic().as_nanos(), cost.get().into()));
            }
        }
        for begin in 0..taken.len() {
            let mut sum = 0;
            for (at, cost) in &taken[begin..] {
                sum += cost;
                let most = u128::from(rate.burst.get()) + (at - taken[begin].0) / interval;
                prop_assert!(sum <= most, "{sum} of {most}");
            }
        }
    }

    /// A caller that always asks gets exactly the burst plus the rate, and the returned wait is
    /// exact.
    // Proves F01.
    #[test]
    fn constant_demand_gets_exactly_burst_plus_rate(rate in rates(), turns in 1..300u32) {
        let (table, clock) = table(1);
        let one = NonZeroU32::MIN;
        for _ in 0..rate.burst.get() {
            prop_assert!(table.take(key(0), &rate, one).is_ok());
        }
        let interval = rate.per / rate.count.get();
        for turn in 1..=turns {
            let wait = table.take(key(0), &rate, one).unwrap_err();
            prop_assert!(wait <= interval);
            clock.advance(wait - Duration::from_nanos(1));
            prop_assert!(table.take(key(0), &rate, one).is_err(), "one nanosecond early");
            clock.advance(Duration::from_nanos(1));
            prop_assert!(table.take(key(0), &rate, one).is_ok(), "in time");
            prop_assert_eq!(clock.monotonic(), interval * turn);
        }
    }
}

#[test]
fn a_cost_above_the_burst_takes_a_full_bucket() {
    let (table, clock) = table(1);
    let rate = rate(1, Duration::from_secs(1), 3);
    table.take(key(0), &rate, some(50)).unwrap();
    assert_eq!(
        table.take(key(0), &rate, some(50)),
        Err(Duration::from_secs(3))
    );
    clock.advance(Duration::from_secs(3));
    table.take(key(0), &rate, some(50)).unwrap();
}

/// F02: a caller under ever new keys fills the table, and then evicts its own buckets.
// Proves F02.
#[test]
fn sprayed_keys_fill_the_table_once_and_a_busy_bucket_stays() {
    let (table, _clock) = table(4096);
    let rate = rate(1, Duration::from_secs(3600), 1);
    let busy = key(u128::MAX);
    table.take(busy, &rate, NonZeroU32::MIN).unwrap();
    for number in 0..1_000_000 {
        table.take(key(number), &rate, NonZeroU32::MIN).unwrap();
        if number % 50 == 0 {
            assert!(
                table.take(busy, &rate, NonZeroU32::MIN).is_err(),
                "driven out after {number}"
            );
        }
    }
    assert_eq!(table.len(), 4096);
}

#[test]
fn the_bucket_unused_longest_makes_room() {
    let clock: Arc<dyn Clock> = Arc::new(FakeClock::new());
    let mut shard = BucketShard::new(3);
    let rate = rate(1, Duration::from_secs(1), 1);
    let mut touch = |number| {
        shard.bucket(key(number), || {
            RateLimiter::direct_with_clock(quota(&rate), GovernorClock(clock.clone()))
        });
        let mut held: Vec<u128> = shard
            .places
            .keys()
            .map(|key| u128::from_be_bytes(key.owner))
            .collect();
        held.sort_unstable();
        held
    };
    for number in [1, 2, 3, 1] {
        touch(number);
    }
    assert_eq!(touch(4), [1, 3, 4], "2 was the oldest");
    assert_eq!(touch(3), [1, 3, 4]);
    assert_eq!(touch(5), [3, 4, 5]);
    assert_eq!(touch(6), [3, 5, 6]);
    assert_eq!(touch(6), [3, 5, 6], "the newest again");
}
