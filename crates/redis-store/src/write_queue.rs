//! The queue of writes that the shared store has not yet: one for each record, the newest.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use weir_core::port::RecordKey;

/// The reason why a record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordEnd {
    /// This replica removed it.
    Removed,
    /// A client removed it, and this replica does not have it.
    Unknown,
    /// It expired here: its owner alone may end it.
    Expired,
}

/// A write that waits. Values are read when it is sent, so that it is the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingWrite {
    /// The record as it is here then, with this time to live.
    Save(Duration),
    /// The end of the record.
    End(RecordEnd),
}

/// Writes in the order of their arrival, ends first. When it is full, the oldest value gives way.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    writes: HashMap<RecordKey, (u64, PendingWrite)>,
    saves: BTreeMap<u64, RecordKey>,
    ends: BTreeMap<u64, RecordKey>,
    arrivals: u64,
    most: usize,
}

impl WriteQueue {
    /// An empty queue for at most `most` records.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            writes: HashMap::new(),
            saves: BTreeMap::new(),
            ends: BTreeMap::new(),
            arrivals: 0,
            most,
        }
    }

    /// The number of records with a write.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Adds a write. An end stays: no value follows it. Returns the record whose write was dropped
    /// for it.
    pub(crate) fn push(&mut self, key: RecordKey, write: PendingWrite) -> Option<RecordKey> {
        let known = self.writes.get(&key).copied();
        if let Some((_, PendingWrite::End(_))) = known {
            return None;
        }
        if let (Some((arrival, _)), PendingWrite::Save(_)) = (known, write) {
            self.writes.insert(key, (arrival, write));
            return None;
        }
        if let Some((arrival, _)) = known {
            self.saves.remove(&arrival);
        }
        self.arrivals += 1;
        let order = match write {
            PendingWrite::Save(_) => &mut self.saves,
            PendingWrite::End(_) => &mut self.ends,
        };
        order.insert(self.arrivals, key.clone());
        self.writes.insert(key, (self.arrivals, write));
        if self.writes.len() <= self.most {
            return None;
        }
        let dropped = self.saves.pop_first().or_else(|| self.ends.pop_first());
        let (_, dropped) = dropped?;
        self.writes.remove(&dropped);
        Some(dropped)
    }

    /// Takes at most `most` writes.
    pub(crate) fn take(&mut self, most: usize) -> Vec<(RecordKey, PendingWrite)> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let first = self.ends.pop_first().or_else(|| self.saves.pop_first());
            let Some((_, key)) = first else {
                break;
            };
            if let Some((_, write)) = self.writes.remove(&key) {
                taken.push((key, write));
            }
        }
        taken
    }

    /// Removes the value of a record: it is written. An end of the record stays.
    pub(crate) fn remove_save(&mut self, key: &RecordKey) {
        if let Some((arrival, PendingWrite::Save(_))) = self.writes.get(key) {
            self.saves.remove(arrival);
            self.writes.remove(key);
        }
    }

    /// Removes the end of a record: it is written.
    pub(crate) fn remove_end(&mut self, key: &RecordKey) {
        if let Some((arrival, PendingWrite::End(_))) = self.writes.get(key) {
            self.ends.remove(arrival);
            self.writes.remove(key);
        }
    }

    /// The write of a record.
    pub(crate) fn get(&self, key: &RecordKey) -> Option<PendingWrite> {
        self.writes.get(key).map(|(_, write)| *write)
    }
}

#[cfg(test)]
mod tests {
    use weir_core::Principal;

    use super::*;

    const SAVE: PendingWrite = PendingWrite::Save(Duration::from_secs(1));
    const END: PendingWrite = PendingWrite::End(RecordEnd::Removed);

    fn key(id: u8) -> RecordKey {
        RecordKey {
            principal: Principal::owner(None),
            id: [id; 16],
        }
    }

    #[test]
    fn one_write_for_each_record_and_ends_first() {
        let mut queue = WriteQueue::new(10);
        let later = PendingWrite::Save(Duration::from_secs(2));
        for (id, write) in [
            (1, SAVE),
            (2, SAVE),
            (1, later),
            (3, END),
            (3, SAVE),
            (4, SAVE),
        ] {
            assert_eq!(queue.push(key(id), write), None);
        }
        queue.push(key(4), END);
        assert_eq!(queue.len(), 4);
        assert_eq!(queue.get(&key(3)), Some(END));
        assert_eq!(queue.get(&key(1)), Some(later));
        let taken = queue.take(3);
        assert_eq!(taken, [(key(3), END), (key(4), END), (key(1), later)]);
        queue.push(key(5), END);
        queue.remove_save(&key(5));
        queue.remove_end(&key(2));
        assert_eq!(queue.len(), 2);
        queue.remove_end(&key(5));
        queue.remove_save(&key(2));
        assert_eq!((queue.len(), queue.take(3)), (0, Vec::new()));
    }

    #[test]
    fn full_queue_drops_the_oldest_value() {
        let mut queue = WriteQueue::new(2);
        assert_eq!(queue.push(key(1), END), None);
        assert_eq!(queue.push(key(2), SAVE), None);
        assert_eq!(queue.push(key(3), SAVE), Some(key(2)));
        assert_eq!(queue.push(key(4), END), Some(key(3)));
        assert_eq!(queue.push(key(5), END), Some(key(1)));
        assert_eq!(queue.len(), 2);
    }
}
