//! Counters with a time to live, in memory.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_core::port::{BoxFuture, Clock, OutageCounting, SharedCounters, StoreError};

use crate::expiring_table::ExpiringTable;
use crate::store_operation::StoreOperation;

/// Counters alive at once. Their names come from the config and from principals, so this bounds the
/// latter.
const MAX_COUNTERS: usize = 100_000;

static ADD: StoreOperation = StoreOperation::new("counters", "add");

/// Counters of this replica, at most 100,000 alive at once.
#[derive(Debug)]
pub struct MemoryCounters {
    clock: Arc<dyn Clock>,
    counters: Mutex<ExpiringTable<u64>>,
}

impl MemoryCounters {
    /// An empty set of counters.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            counters: Mutex::new(ExpiringTable::new(MAX_COUNTERS)),
        }
    }

    fn add_now(&self, name: &str, amount: u64, ttl: Duration) -> Result<u64, StoreError> {
        let now = self.clock.monotonic();
        let mut counters = self.counters.lock();
        let counter = counters.get_or_insert(name, now + ttl, now);
        let value = counter
            .ok_or_else(|| StoreError(format!("more than {MAX_COUNTERS} counters are alive")))?;
        *value = value.saturating_add(amount);
        Ok(*value)
    }
}

impl SharedCounters for MemoryCounters {
    fn add<'a>(
        &'a self,
        name: &'a str,
        amount: u64,
        ttl: Duration,
        _in_outage: OutageCounting,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(std::future::ready(
            ADD.time(|| self.add_now(name, amount, ttl)),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_testkit::FakeClock;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_counter_falls_away_a_ttl_after_its_first_use() {
        let clock = Arc::new(FakeClock::default());
        let counters = MemoryCounters::new(clock.clone());
        assert_eq!(
            counters
                .add("a", 2, TTL, OutageCounting::Own)
                .await
                .unwrap(),
            2
        );
        clock.advance(Duration::from_secs(9));
        assert_eq!(
            counters
                .add("a", 3, TTL, OutageCounting::Own)
                .await
                .unwrap(),
            5
        );
        assert_eq!(
            counters
                .add("b", 1, TTL, OutageCounting::Own)
                .await
                .unwrap(),
            1
        );
        clock.advance(Duration::from_secs(1));
        assert_eq!(
            counters
                .add("a", 1, TTL, OutageCounting::Own)
                .await
                .unwrap(),
            1
        );
    }

    #[test]
    fn counters_are_bounded_and_dead_ones_make_room() {
        let clock = Arc::new(FakeClock::default());
        let counters = MemoryCounters::new(clock.clone());
        for n in 0..MAX_COUNTERS {
            counters.add_now(&n.to_string(), 1, TTL).unwrap();
        }
        assert!(counters.add_now("one more", 1, TTL).is_err());
        clock.advance(TTL);
        assert_eq!(counters.add_now("one more", 1, TTL).unwrap(), 1);
    }
}
