//! Counters with a time to live, in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use weir_core::port::{
    BoxFuture, Clock, CounterAddition, CounterValue, OutageCounting, SharedCounters, StoreError,
};

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

    fn add_now(&self, addition: CounterAddition<'_>) -> Result<CounterValue, StoreError> {
        let CounterAddition {
            name,
            amount,
            most,
            ttl,
        } = addition;
        let now = self.clock.monotonic();
        let mut counters = self.counters.lock();
        let counter = counters.get_or_insert(name, now + ttl, now);
        let value = counter
            .ok_or_else(|| StoreError(format!("more than {MAX_COUNTERS} counters are alive")))?;
        let sum = value.saturating_add(amount);
        let is_added = sum <= most;
        if is_added {
            *value = sum;
        }
        Ok(CounterValue {
            value: *value,
            is_added,
        })
    }
}

impl SharedCounters for MemoryCounters {
    fn add<'a>(
        &'a self,
        addition: CounterAddition<'a>,
        _in_outage: OutageCounting,
    ) -> BoxFuture<'a, Result<CounterValue, StoreError>> {
        Box::pin(std::future::ready(ADD.time(|| self.add_now(addition))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use weir_testkit::FakeClock;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn add(counters: &MemoryCounters, name: &str, amount: u64) -> Result<u64, StoreError> {
        let added = counters.add_now(CounterAddition {
            name,
            amount,
            most: u64::MAX,
            ttl: TTL,
        });
        added.map(|counted| counted.value)
    }

    #[test]
    fn a_counter_falls_away_a_ttl_after_its_first_use() {
        let clock = Arc::new(FakeClock::default());
        let counters = MemoryCounters::new(clock.clone());
        assert_eq!(add(&counters, "a", 2).unwrap(), 2);
        clock.advance(Duration::from_secs(9));
        assert_eq!(add(&counters, "a", 3).unwrap(), 5);
        assert_eq!(add(&counters, "b", 1).unwrap(), 1);
        clock.advance(Duration::from_secs(1));
        assert_eq!(add(&counters, "a", 1).unwrap(), 1);
    }

    #[tokio::test]
    async fn amount_beyond_the_highest_value_is_not_added() {
        let counters = MemoryCounters::new(Arc::new(FakeClock::default()));
        for (amount, value, is_added) in [(4, 4, true), (2, 4, false), (1, 5, true), (1, 5, false)]
        {
            let addition = CounterAddition {
                name: "a",
                amount,
                most: 5,
                ttl: TTL,
            };
            let counted = counters.add(addition, OutageCounting::Own).await.unwrap();
            assert_eq!(counted, CounterValue { value, is_added });
        }
    }

    #[test]
    fn counters_are_bounded_and_dead_ones_make_room() {
        let clock = Arc::new(FakeClock::default());
        let counters = MemoryCounters::new(clock.clone());
        for n in 0..MAX_COUNTERS {
            add(&counters, &n.to_string(), 1).unwrap();
        }
        assert!(add(&counters, "one more", 1).is_err());
        clock.advance(TTL);
        assert_eq!(add(&counters, "one more", 1).unwrap(), 1);
    }
}
