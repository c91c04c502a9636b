//! The values of shared counters as this replica knows them.

use std::time::Duration;

use parking_lot::Mutex;
use weir_core::port::StoreError;
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

    /// Adds an amount that the store did not confirm. Returns the new value.
    pub(crate) fn add_alone(
        &self,
        name: &str,
        added: UnconfirmedAmount,
        ends: Duration,
        now: Duration,
    ) -> Result<u64, StoreError> {
        let mut all = self.0.lock();
        let known = all
            .get_or_insert(name, ends, now)
            .ok_or_else(|| StoreError(format!("more than {MAX_COUNTERS} counters are alive")))?;
        known.total = known.total.saturating_add(added.amount);
        known.owed = known.owed.saturating_add(added.owed);
        Ok(known.total)
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

/// An amount whose addition the store did not confirm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnconfirmedAmount {
    pub(crate) amount: u64,
    /// The part of it that the store lacks for certain.
    pub(crate) owed: u64,
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

    fn unconfirmed(amount: u64, owed: u64) -> UnconfirmedAmount {
        UnconfirmedAmount { amount, owed }
    }

    #[test]
    fn owed_amount_counts_until_the_store_has_it() {
        let table = CounterTable::default();
        assert_eq!(table.follow("a", stored(4), NOW), 4);
        // Answers may come in another order.
        assert_eq!(table.follow("a", stored(3), NOW), 3);
        assert_eq!(
            table.add_alone("a", unconfirmed(2, 2), END, NOW).unwrap(),
            6
        );
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
        assert_eq!(
            table.add_alone("a", unconfirmed(2, 0), END, NOW).unwrap(),
            6
        );
        assert_eq!(
            table.add_alone("a", unconfirmed(1, 1), END, NOW).unwrap(),
            7
        );
        assert_eq!(table.take_owed("a", NOW), 1);
    }

    #[test]
    fn counter_falls_away_at_its_end() {
        let table = CounterTable::default();
        table.follow("a", stored(4), NOW);
        table.add_alone("a", unconfirmed(2, 2), END, NOW).unwrap();
        assert_eq!((table.seen("a", END), table.take_owed("a", END)), (0, 0));
        assert_eq!(
            table
                .add_alone("a", unconfirmed(1, 1), END * 2, END)
                .unwrap(),
            1
        );
    }

    #[test]
    fn counters_are_bounded_and_ended_ones_make_room() {
        let table = CounterTable::default();
        for n in 0..MAX_COUNTERS {
            table
                .add_alone(&n.to_string(), unconfirmed(1, 1), END, NOW)
                .unwrap();
        }
        assert!(
            table
                .add_alone("one more", unconfirmed(1, 1), END, NOW)
                .is_err()
        );
        assert_eq!(table.follow("one more", stored(3), NOW), 3);
        assert_eq!(
            table
                .add_alone("one more", unconfirmed(1, 1), END * 2, END)
                .unwrap(),
            1
        );
    }
}
