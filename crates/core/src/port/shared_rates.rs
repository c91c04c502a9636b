//! The port of rates that all replicas share.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::port::BoxFuture;

/// A number of requests in a time, evenly, and at most `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of requests.
    pub count: NonZeroU32,
    /// The time for them; not zero.
    pub per: Duration,
    /// The most at once, after a pause.
    pub burst: NonZeroU32,
}

/// The unit that a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateUnit {
    /// Requests of an address or of a principal.
    Requests,
    /// Calls of a principal, by their cost.
    Calls,
    /// Calls of some tools.
    Tool,
    /// Calls of an upstream, by their cost.
    Upstream,
}

/// The name of one bucket, the same on every replica with the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateBucket {
    /// A digest of the limit's name and rate: another rate has other buckets.
    pub limit: u64,
    /// The unit that is counted: a limit has a bucket for each.
    pub unit: RateUnit,
    /// The digest of the owner; zeros for a bucket of all principals.
    pub owner: [u8; 16],
}

/// The decision on a charge, at once or after a bounded wait: `Ok`, or the refusal.
pub enum RateDecision<'a, E> {
    /// It is known.
    Now(Result<(), E>),
    /// It needs the shared state. Cancel safe: a dropped future has charged at most its own cost.
    Later(BoxFuture<'a, Result<(), E>>),
}

impl<E: std::fmt::Debug> std::fmt::Debug for RateDecision<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(decision) => write!(f, "Now({decision:?})"),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// Buckets of tokens that all replicas take from. While the shared state cannot be reached, each
/// replica decides by its share of the rate, after a limited time.
pub trait SharedRates: Send + Sync {
    /// Takes all of `cost` out of a bucket (at most a full one), or refuses with the time until the
    /// same charge may pass.
    fn take(&self, bucket: RateBucket, rate: &Rate, cost: NonZeroU32)
    -> RateDecision<'_, Duration>;

    /// Returns the time until a bucket has `cost`, for operators: it charges no cost, and may wait.
    fn wait(&self, bucket: RateBucket, rate: Rate, cost: NonZeroU32) -> BoxFuture<'_, Duration>;

    /// Returns the buckets that refuse charges of this replica now, and for how long.
    fn refusing(&self) -> Vec<(RateBucket, Duration)>;
}
