//! Buckets by key: sharded, and capped; the least recently used bucket is evicted.
//!
//! `governor`'s own keyed store keeps every key it ever saw. Here a flood of keys fills a table
//! once, and from then on evicts only the buckets that are unused for longest, full again or nearly
//! so (F02). An evicted bucket begins anew, full: a table that is too small allows more, never
//! less.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock as _;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use weir_core::port::{Clock, Rate, RateBucket};

/// Enough that few requests contend for one lock.
const SHARDS: usize = 32;
/// No node.
const NONE: u32 = u32::MAX;

/// The table.
pub(super) struct BucketTable {
    shards: Box<[Mutex<BucketShard>]>,
    hasher: RandomState,
    ticks: GovernorClock,
}

/// Core's clock as governor's trait.
#[derive(Clone)]
struct GovernorClock(Arc<dyn Clock>);

impl governor::clock::Clock for GovernorClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

type Bucket = RateLimiter<NotKeyed, InMemoryState, GovernorClock, NoOpMiddleware<Duration>>;

impl BucketTable {
    /// A table of at most `most` buckets.
    pub(super) fn new(most: usize, clock: Arc<dyn Clock>) -> Self {
        let each = most.div_ceil(SHARDS).max(1);
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(BucketShard::new(each)))
            .collect();
        Self {
            shards,
            hasher: RandomState::new(),
            ticks: GovernorClock(clock),
        }
    }

    /// Takes `cost` out of a bucket, or returns the time until that much is in it. A cost above the
    /// burst takes a full bucket.
    pub(super) fn take(
        &self,
        key: RateBucket,
        rate: &Rate,
        cost: std::num::NonZeroU32,
    ) -> Result<(), Duration> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[at].lock();
        let bucket = shard.bucket(key, || {
            RateLimiter::direct_with_clock(quota(rate), self.ticks.clone())
        });
        match bucket.check_n(cost.min(rate.burst)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => Err(until.wait_time_from(self.ticks.now())),
            // Cannot be: the cost is at most the burst.
            Err(_) => Err(rate.per),
        }
    }

    /// The time until a bucket has `cost`; zero if it has it now. Charges no cost.
    pub(super) fn wait(
        &self,
        key: RateBucket,
        rate: &Rate,
        cost: std::num::NonZeroU32,
    ) -> Duration {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[at].lock();
        let Some(&place) = shard.places.get(&key) else {
            return Duration::ZERO;
        };
        let node = &mut shard.nodes[place as usize];
        // Either a whole burst is there, or governor returns the time until it is.
        let full = match node.bucket.check_n(rate.burst) {
            Ok(Err(until)) => until.wait_time_from(self.ticks.now()),
            // The bucket was full: so it is replaced by a full one.
            Ok(Ok(())) | Err(_) => {
                node.bucket = RateLimiter::direct_with_clock(quota(rate), self.ticks.clone());
                return Duration::ZERO;
            }
        };
        let spare = rate.burst.get() - cost.min(rate.burst).get();
        full.saturating_sub(interval(rate) * spare)
    }

    /// The buckets that lack `cost` now, of those for which `rate` knows a rate.
    pub(super) fn refusing<'a>(
        &self,
        cost: std::num::NonZeroU32,
        rate: impl Fn(&RateBucket) -> Option<&'a Rate>,
    ) -> Vec<(RateBucket, Duration)> {
        let wait = |key: RateBucket| {
            let wait = self.wait(key, rate(&key)?, cost);
            (!wait.is_zero()).then_some((key, wait))
        };
        self.keys().into_iter().filter_map(wait).collect()
    }

    fn keys(&self) -> Vec<RateBucket> {
        let shard = |shard: &Mutex<BucketShard>| -> Vec<RateBucket> {
            let shard = shard.lock();
            shard.places.keys().copied().collect()
        };
        self.shards.iter().flat_map(shard).collect()
    }

    /// The number of buckets.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().nodes.len())
            .sum()
    }
}

/// The time until one more is available. Never zero: the config refuses a rate of more than one in
/// a nanosecond.
fn interval(rate: &Rate) -> Duration {
    (rate.per / rate.count.get()).max(Duration::from_nanos(1))
}

fn quota(rate: &Rate) -> Quota {
    Quota::with_period(interval(rate)).map_or_else(
        || Quota::per_second(rate.count),
        |quota| quota.allow_burst(rate.burst),
    )
}

/// A map into a list ordered by last use.
struct BucketShard {
    places: HashMap<RateBucket, u32>,
    nodes: Vec<BucketNode>,
    newest: u32,
    oldest: u32,
    most: usize,
}

struct BucketNode {
    key: RateBucket,
    bucket: Bucket,
    newer: u32,
    older: u32,
}

impl BucketShard {
    fn new(most: usize) -> Self {
        Self {
            places: HashMap::new(),
            nodes: Vec::new(),
            newest: NONE,
            oldest: NONE,
            most,
        }
    }

    /// The bucket of a key, now the newest.
    fn bucket(&mut self, key: RateBucket, make: impl FnOnce() -> Bucket) -> &Bucket {
        let at = match self.places.get(&key) {
            Some(&at) => {
                self.unlink(at);
                at
            }
            None if self.nodes.len() < self.most => {
                self.nodes.push(BucketNode {
                    key,
                    bucket: make(),
                    newer: NONE,
                    older: NONE,
                });
                // A shard never has more nodes than fit: `most` comes from a constant.
                let at = (self.nodes.len() - 1) as u32;
                self.places.insert(key, at);
                at
            }
            None => {
                let at = self.oldest;
                self.unlink(at);
                let node = &mut self.nodes[at as usize];
                self.places.remove(&node.key);
                (node.key, node.bucket) = (key, make());
                self.places.insert(key, at);
                at
            }
        };
        self.link(at);
        &self.nodes[at as usize].bucket
    }

    fn unlink(&mut self, at: u32) {
        let BucketNode { newer, older, .. } = self.nodes[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    fn link(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (NONE, before);
        match before {
            NONE => self.oldest = at,
            before => self.nodes[before as usize].newer = at,
        }
    }
}

#[cfg(test)]
mod tests;
