//! The port of rates that all replicas share.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Fut;

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

/// The name of one bucket: tokens of one limit for one owner. It is the same on every replica with
/// the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateBucket {
    /// A digest of the limit's name and rate: another rate has other buckets.
    pub limit: u64,
    /// The unit that is counted: a limit has a bucket for each.
    pub unit: RateUnit,
    /// The digest of the owner; zeros for a bucket of all principals.
    pub owner: [u8; 16],
}

/// The decision on a charge: `Ok`, or the time until the same charge may pass.
pub type RateDecision = Result<(), Duration>;

/// A decision on a charge, at once or after a bounded wait.
pub enum RateCharge<'a> {
    /// The decision.
    Now(RateDecision),
    /// The decision needs the shared state. Cancel safe: a dropped future has charged at most its
    /// own cost.
    Later(Fut<'a, RateDecision>),
}

impl std::fmt::Debug for RateCharge<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(decision) => f.debug_tuple("Now").field(decision).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// Buckets of tokens that all replicas take from. While the shared state cannot be reached, each
/// replica decides by its share of the rate: no charge waits longer than a time limit, and none
/// passes uncounted.
pub trait SharedRates: Send + Sync {
    /// Takes `cost` out of a bucket, or nothing. A cost above the burst takes a full bucket.
    fn take<'a>(&'a self, bucket: RateBucket, rate: &Rate, cost: NonZeroU32) -> RateCharge<'a>;

    /// Returns the time until a bucket has `cost`; zero if it has it now. Charges nothing. It takes
    /// a trip, so it is for operators.
    fn wait<'a>(&'a self, bucket: RateBucket, rate: Rate, cost: NonZeroU32) -> Fut<'a, Duration>;

    /// Returns the buckets that this replica refuses charges of now, each with the rest of the time
    /// that the last refusal named.
    fn refusing(&self) -> Vec<(RateBucket, Duration)>;
}
