//! The buckets of principals, tools and upstreams: in the memory of this replica, or shared by all.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{Clock, Rate, RateBucket, RateDecision, SharedRates};

use crate::limit::bucket_table::BucketTable;
use crate::limit::limit_charge::{LimitCharge, ONE};

/// The buckets.
pub(super) struct RateBuckets {
    /// Unused if the rates are shared.
    own: BucketTable,
    shared: Option<Arc<dyn SharedRates>>,
}

impl RateBuckets {
    /// At most `most` buckets of this replica alone.
    pub(super) fn new(most: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            own: BucketTable::new(most, clock),
            shared: None,
        }
    }

    /// Takes from buckets of all replicas instead.
    pub(super) fn share(&mut self, shared: Arc<dyn SharedRates>) {
        self.shared = Some(shared);
    }

    /// Takes a charge out of its bucket, or nothing.
    pub(super) fn charge<'a>(&'a self, charge: &LimitCharge<'_>) -> RateDecision<'a, Duration> {
        let Some((bucket, rate)) = charge.bucket() else {
            return RateDecision::Now(Ok(()));
        };
        match &self.shared {
            None => RateDecision::Now(self.own.take(bucket, rate, charge.cost)),
            Some(shared) => shared.take(bucket, rate, charge.cost),
        }
    }

    /// The time until a charge would pass; zero if it would now. Charges nothing.
    pub(super) async fn wait(&self, charge: &LimitCharge<'_>) -> Duration {
        let Some((bucket, rate)) = charge.bucket() else {
            return Duration::ZERO;
        };
        match &self.shared {
            None => self.own.wait(bucket, rate, charge.cost),
            Some(shared) => shared.wait(bucket, *rate, charge.cost).await,
        }
    }

    /// The buckets that refuse a charge of 1 now, of those for which `rate` knows a rate. Of shared
    /// buckets those that refused this replica.
    pub(super) fn refusing<'a>(
        &self,
        rate: impl Fn(&RateBucket) -> Option<&'a Rate>,
    ) -> Vec<(RateBucket, Duration)> {
        if let Some(shared) = &self.shared {
            let mut found = shared.refusing();
            found.retain(|(bucket, _)| rate(bucket).is_some());
            return found;
        }
        self.own.refusing(ONE, rate)
    }
}
