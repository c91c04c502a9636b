//! The values of shared counters as this replica knows them.

use std::time::Duration;

use parking_lot::Mutex;
use weir_core::port::{CounterAddition, CounterValue, StoreError};
use weir_store::ExpiringTable;

/// The most counters that are known. Their names come from the config and from principals, so this
/// bounds the latter.
const MAX_COUNTERS: usize = 100_000;

/// The known counters, at most [`MAX_COUNTERS`]. Times are of the monotonic clock.
pub(crate) struct CounterTable(Mutex<ExpiringTable<KnownCounter>>);

impl Default for CounterTable {
    fn default() -> Self {
        Self(Mutex::new(ExpiringTable::new(MAX_COUNTERS)))
    }
}

/// A counter that the store had, or will have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KnownCounter {
    /// The highest value that the store had.
    seen: u64,
    /// The highest value, with amounts that the store lacks.
    total: u64,
    /// The amount that the store lacks.
    owed: u64,
    /// The part of it that is on its way to the store, and may be there.
    sent: u64,
}

/// The value of a counter in the store, from one of its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredValue {
    pub(crate) value: u64,
    /// The end of the counter.
    pub(crate) ends: Duration,
}

impl CounterTable {
    /// The highest value that the store is known to have had.
    pub(crate) fn seen(&self, name: &str, now: Duration) -> u64 {
        let mut all = self.0.lock();
        all.get_mut(name, now).map_or(0, |known| known.seen)
    }

    /// The amount that the store lacks.
    pub(crate) fn owed(&self, name: &str, now: Duration) -> u64 {
        let mut all = self.0.lock();
        all.get_mut(name, now).map_or(0, |known| known.owed)
    }

    /// Takes a value from the store. Returns the value that decides: the store's, or a higher one
    /// while the store lacks amounts of this replica.
    pub(crate) fn follow(&self, name: &str, stored: StoredValue, now: Duration) -> u64 {
        let StoredValue { value, ends } = stored;
        let mut all = self.0.lock();
        // Without room for the counter, the value in the store is the only one.
        let Some(known) = all.get_or_insert(name, ends, now) else {
            return value;
        };
        known.seen = known.seen.max(value);
        known.total = known.total.max(value);
        if known.owed > 0 { known.total } else { value }
    }

    /// Makes an addition that the store did not confirm. `is_owed`: the store lacks it for certain.
    pub(crate) fn add_alone(
        &self,
        addition: CounterAddition<'_>,
        is_owed: bool,
        now: Duration,
    ) -> Result<CounterValue, StoreError> {
        let amount = addition.amount;
        let mut all = self.0.lock();
        let known = all
            .get_or_insert(addition.name, now + addition.ttl, now)
            .ok_or_else(|| StoreError(format!("more than {MAX_COUNTERS} counters are alive")))?;
        let sum = known.total.saturating_add(amount);
        let is_added = sum <= addition.most;
        if is_added {
            known.total = sum;
            known.owed += if is_owed { amount } else { 0 };
        }
        let value = known.total;
        Ok(CounterValue { value, is_added })
    }

    /// Takes the amount to send to the store. It is owed until [`Self::settle`].
    pub(crate) fn take_owed(&self, name: &str, now: Duration) -> u64 {
        let mut all = self.0.lock();
        let Some(known) = all.get_mut(name, now) else {
            return 0;
        };
        let amount = known.owed - known.sent;
        known.sent = known.owed;
        amount
    }

    /// Ends the sending of an amount: the store has it, or does not answer and lacks it.
    pub(crate) fn settle(&self, name: &str, amount: u64, has_arrived: bool, now: Duration) {
        if let Some(known) = self.0.lock().get_mut(name, now) {
            known.sent = known.sent.saturating_sub(amount);
            if has_arrived {
                known.owed = known.owed.saturating_sub(amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const END: Duration = Duration::from_secs(10);

    fn stored(value: u64) -> StoredValue {
        StoredValue { value, ends: END }
    }

    /// Adds one after another without the store, up to ten at most.
    fn add_alone(table: &CounterTable, amount: u64, is_owed: bool) -> (u64, bool) {
        let counted = table.add_alone(addition("a", amount), is_owed, NOW);
        let CounterValue { value, is_added } = counted.unwrap();
        (value, is_added)
    }

    fn addition(name: &str, amount: u64) -> CounterAddition<'_> {
        CounterAddition {
            name,
            amount,
            most: 10,
            ttl: END - NOW,
        }
    }

    #[test]
    fn owed_amount_counts_until_the_store_has_it() {
        let table = CounterTable::default();
        assert_eq!(table.follow("a", stored(4), NOW), 4);
        // Answers may come in another order.
        assert_eq!(table.follow("a", stored(3), NOW), 3);
        assert_eq!(add_alone(&table, 2, true), (6, true));
        assert_eq!(table.owed("a", NOW), 2);
        assert_eq!((table.seen("a", NOW), table.take_owed("a", NOW)), (4, 2));
        // It is sent once.
        assert_eq!(table.take_owed("a", NOW), 0);
        assert_eq!(table.follow("a", stored(5), NOW), 6);
        table.settle("a", 2, false, NOW);
        assert_eq!(table.take_owed("a", NOW), 2);
        table.settle("a", 2, true, NOW);
        assert_eq!(table.follow("a", stored(7), NOW), 7);
        assert_eq!((table.seen("a", NOW), table.take_owed("a", NOW)), (7, 0));
    }

    #[test]
    fn unconfirmed_amount_that_the_store_may_have_is_not_owed() {
        let table = CounterTable::default();
        table.follow("a", stored(4), NOW);
        assert_eq!(add_alone(&table, 2, false), (6, true));
        assert_eq!(add_alone(&table, 1, true), (7, true));
        assert_eq!(table.take_owed("a", NOW), 1);
    }

    #[test]
    fn amount_beyond_the_highest_value_is_neither_counted_nor_owed() {
        let table = CounterTable::default();
        table.follow("a", stored(8), NOW);
        assert_eq!(add_alone(&table, 3, true), (8, false));
        assert_eq!(add_alone(&table, 2, true), (10, true));
        assert_eq!(add_alone(&table, 1, true), (10, false));
        assert_eq!(table.take_owed("a", NOW), 2);
    }

    #[test]
    fn counter_falls_away_at_its_end() {
        let table = CounterTable::default();
        table.follow("a", stored(4), NOW);
        add_alone(&table, 2, true);
        assert_eq!((table.seen("a", END), table.take_owed("a", END)), (0, 0));
        let counted = table.add_alone(addition("a", 1), true, END).unwrap();
        assert_eq!(counted.value, 1);
    }

    #[test]
    fn counters_are_bounded_and_ended_ones_make_room() {
        let table = CounterTable::default();
        for n in 0..MAX_COUNTERS {
            table
                .add_alone(addition(&n.to_string(), 1), true, NOW)
                .unwrap();
        }
        let more = addition("one more", 1);
        assert!(table.add_alone(more, true, NOW).is_err());
        assert_eq!(table.follow("one more", stored(3), NOW), 3);
        assert_eq!(table.add_alone(more, true, END).unwrap().value, 1);
    }
}
