//! Slots for values that are opened on demand and shared by key: sessions and child processes.
//! Their number is bounded. An unused slot without a living value makes room at once; else the least
//! recently used slot does, if it was unused for long enough. An owner of many slots leaves some to
//! others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::retry_backoff::RetryBackoff;

/// An owner may have this many times the slots that are left for others, as with the budgets of the
/// process.
const OWN_TO_FREE_RATIO: usize = 3;
/// With fewer slots than this, the first owner may have all of them.
const MIN_SHARED_SLOTS: usize = 8;

/// The slots.
#[derive(Debug)]
pub struct KeyedSlots<K, T> {
    map: RwLock<HashMap<K, Arc<KeyedSlot<T>>>>,
    most: usize,
    /// The milliseconds for which a slot must be unused before it makes room.
    idle: u64,
    /// True for a value that has ended by itself.
    is_over: fn(&T) -> bool,
}

/// One slot: its current value, and the lock under which a value is opened.
#[derive(Debug)]
pub struct KeyedSlot<T> {
    /// The value, while it is open.
    pub current: ArcSwapOption<T>,
    /// Locked while a value is opened.
    pub opening: Arc<tokio::sync::Mutex<()>>,
    /// The backoff of opening a value, if the ones before ended early.
    pace: Mutex<RetryBackoff>,
    used: Arc<AtomicU64>,
}

/// A slot, and the value that was evicted for it.
pub type SlotAndEvicted<T> = (Arc<KeyedSlot<T>>, Option<Arc<T>>);

impl<K: Eq + Hash + Clone, T> KeyedSlots<K, T> {
    /// Makes at most `most` slots. A slot makes room for another after it was unused for `idle`
    /// milliseconds.
    pub fn new(most: usize, idle: u64) -> Self {
        Self {
            map: RwLock::default(),
            most: most.max(1),
            idle,
            is_over: |_| false,
        }
    }

    /// The same slots, of values that may end by themselves, as `is_over` shows.
    #[must_use]
    pub fn with_end(self, is_over: fn(&T) -> bool) -> Self {
        Self { is_over, ..self }
    }

    /// Returns the slot of `key`, and the value that was evicted for it. Absent if every slot is in
    /// use, or was until a short while ago.
    pub fn slot(&self, key: &K, now: u64) -> Option<SlotAndEvicted<T>> {
        self.find_or_make(key, now, true, |_| false)
    }

    /// Returns the slot of `key` for an owner; `is_own` selects the keys of its other slots. An
    /// owner of half of eight or more slots gets a further one while a third as many are left for
    /// others. After that, one of its own that was unused for long enough is evicted for it.
    pub fn slot_of(
        &self,
        key: &K,
        now: u64,
        is_own: impl Fn(&K) -> bool,
    ) -> Option<SlotAndEvicted<T>> {
        self.find_or_make(key, now, true, is_own)
    }

    /// Returns the slot of `key`, if it exists or can be made without evicting a living value.
    pub fn free_slot(&self, key: &K, now: u64) -> Option<Arc<KeyedSlot<T>>> {
        self.find_or_make(key, now, false, |_| false)
            .map(|(slot, _)| slot)
    }

    fn find_or_make(
        &self,
        key: &K,
        now: u64,
        makes_room: bool,
        is_own: impl Fn(&K) -> bool,
    ) -> Option<SlotAndEvicted<T>> {
        if let Some(slot) = self.map.read().get(key) {
            slot.used.store(now, Ordering::Relaxed);
            return Some((slot.clone(), None));
        }
        let mut map = self.map.write();
        let mut gone = None;
        let is_new = !map.contains_key(key);
        let own = if is_new {
            map.keys().filter(|other| is_own(other)).count()
        } else {
            0
        };
        let left = self.most.saturating_sub(map.len() + 1);
        let has_its_share = self.most >= MIN_SHARED_SLOTS
            && own * 2 >= self.most
            && own + 1 > left * OWN_TO_FREE_RATIO;
        if is_new && (map.len() >= self.most || has_its_share) {
            let before = now.saturating_sub(self.idle);
            let is_long_unused = |slot: &KeyedSlot<T>| self.idle == 0 || slot.last_use() <= before;
            let may_go = |slot: &Arc<KeyedSlot<T>>| {
                if self.is_alive(slot) {
                    makes_room && slot.is_unused() && is_long_unused(slot)
                } else {
                    // No value is being opened. One that is over may still be held.
                    Arc::strong_count(slot) <= 1
                }
            };
            let unused = map
                .iter()
                .filter(|(other, slot)| may_go(slot) && (!has_its_share || is_own(other)));
            let oldest = unused.min_by_key(|(_, slot)| (self.is_alive(slot), slot.last_use()));
            let oldest = oldest.map(|(key, _)| key.clone())?;
            gone = map.remove(&oldest).and_then(|slot| slot.current.swap(None));
        }
        let slot = map.entry(key.clone()).or_default().clone();
        slot.used.store(now, Ordering::Relaxed);
        Some((slot, gone))
    }

    /// Takes out the values that were not used since `before`.
    pub fn take_unused(&self, before: u64) -> Vec<Arc<T>> {
        let mut map = self.map.write();
        let old = map.extract_if(|_, slot| slot.is_unused() && slot.last_use() <= before);
        old.filter_map(|(_, slot)| slot.current.swap(None))
            .collect()
    }

    /// Returns the value of this key.
    pub fn value(&self, key: &K) -> Option<Arc<T>> {
        self.map.read().get(key)?.current.load_full()
    }

    /// Returns the values of these keys.
    pub fn values_where(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<T>> {
        let map = self.map.read();
        map.iter()
            .filter(|(key, _)| wanted(key))
            .filter_map(|(_, slot)| slot.current.load_full())
            .collect()
    }

    /// True if the slot of this key is filled.
    pub fn is_filled(&self, key: &K) -> bool {
        let map = self.map.read();
        map.get(key)
            .is_some_and(|slot| slot.current.load().is_some())
    }

    /// True if `slot` is the one of this key. One that was taken out meanwhile is not.
    pub fn holds(&self, key: &K, slot: &KeyedSlot<T>) -> bool {
        let map = self.map.read();
        map.get(key)
            .is_some_and(|held| std::ptr::eq(Arc::as_ptr(held), slot))
    }

    /// Returns the keys and values of all filled slots.
    pub fn filled(&self) -> Vec<(K, Arc<T>)> {
        let map = self.map.read();
        map.iter()
            .filter_map(|(key, slot)| Some((key.clone(), slot.current.load_full()?)))
            .collect()
    }

    /// Takes out the values of these keys.
    pub fn take_where(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<T>> {
        self.take_unless(wanted, |_| false)
    }

    /// Takes out the values of these keys, except those that `is_kept` matches.
    pub fn take_unless(
        &self,
        wanted: impl Fn(&K) -> bool,
        is_kept: impl Fn(&Arc<T>) -> bool,
    ) -> Vec<Arc<T>> {
        let mut map = self.map.write();
        let gone = map.extract_if(|key, slot| {
            wanted(key)
                && !slot
                    .current
                    .load_full()
                    .is_some_and(|value| is_kept(&value))
        });
        gone.filter_map(|(_, slot)| slot.current.swap(None))
            .collect()
    }

    /// Removes the slot of this key, and drops its value, if it has one.
    pub fn remove_slot(&self, key: &K) {
        let removed = self.map.write().remove(key);
        drop(removed.and_then(|slot| slot.current.swap(None)));
    }

    /// Takes out all values.
    pub fn take_all(&self) -> Vec<Arc<T>> {
        let mut map = self.map.write();
        map.drain()
            .filter_map(|(_, slot)| slot.current.swap(None))
            .collect()
    }

    /// Returns the number of living values.
    pub fn open_count(&self) -> usize {
        let map = self.map.read();
        map.values().filter(|slot| self.is_alive(slot)).count()
    }

    fn is_alive(&self, slot: &KeyedSlot<T>) -> bool {
        let value = slot.current.load();
        value.as_ref().is_some_and(|value| !(self.is_over)(value))
    }
}

impl<T> Default for KeyedSlot<T> {
    fn default() -> Self {
        Self {
            current: ArcSwapOption::empty(),
            opening: Arc::default(),
            pace: Mutex::default(),
            used: Arc::default(),
        }
    }
}

impl<T> KeyedSlot<T> {
    /// Returns the backoff of opening a value.
    pub fn pace(&self) -> MutexGuard<'_, RetryBackoff> {
        self.pace.lock()
    }

    /// Removes `gone`. Another value that is already in the slot stays.
    pub fn remove(&self, gone: &Arc<T>) {
        let current = self.current.load();
        if current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, gone))
        {
            self.current.compare_and_swap(&*current, None);
        }
    }

    /// Returns the time of the last use, which users of the value update, in milliseconds of the
    /// clock of [`KeyedSlots::slot`].
    pub fn use_clock(&self) -> Arc<AtomicU64> {
        self.used.clone()
    }

    /// True if only the map holds the slot or its value.
    fn is_unused(self: &Arc<Self>) -> bool {
        let held = self.current.load_full();
        // The slot's own reference and the one just taken.
        Arc::strong_count(self) <= 1 && held.is_none_or(|held| Arc::strong_count(&held) <= 2)
    }

    fn last_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn least_recently_used_slot_makes_room_unless_in_use() {
        let slots: KeyedSlots<u8, String> = KeyedSlots::new(2, 0);
        for key in [1, 2] {
            let (slot, gone) = slots.slot(&key, u64::from(key)).unwrap();
            slot.current.store(Some(Arc::new(key.to_string())));
            assert!(gone.is_none());
        }
        let held = slots.slot(&1, 1).unwrap().0.current.load_full().unwrap();
        let (slot, gone) = slots.slot(&3, 3).unwrap();
        assert_eq!(
            gone.as_deref().map(String::as_str),
            Some("2"),
            "1 is older, and in use"
        );
        assert!(slots.slot(&4, 4).is_none(), "1 is held, 3 is being opened");
        slot.current.store(Some(Arc::new("3".to_owned())));
        drop((slot, held));
        assert_eq!(
            slots.slot(&4, 4).unwrap().1.as_deref().map(String::as_str),
            Some("1")
        );
        assert_eq!(slots.take_unused(3).len(), 1, "4 is newer");
        assert_eq!(slots.open_count(), 0);
    }

    #[test]
    fn recently_used_slot_makes_no_room() {
        let slots: KeyedSlots<u8, u8> = KeyedSlots::new(1, 50);
        let slot = slots.slot(&1, 100).unwrap().0;
        slot.current.store(Some(Arc::new(1)));
        let used = slot.use_clock();
        drop(slot);
        assert!(slots.slot(&2, 149).is_none());
        used.store(120, Ordering::Relaxed);
        assert!(slots.slot(&2, 169).is_none(), "it was used until then");
        assert_eq!(slots.slot(&2, 170).unwrap().1.as_deref(), Some(&1));
    }

    #[test]
    fn owner_of_many_slots_leaves_some_to_others() {
        let slots: KeyedSlots<(u8, u8), u8> = KeyedSlots::new(64, 1000);
        let slot_at = |owner: u8, nth: u8, now: u64| {
            slots.slot_of(&(owner, nth), now, |other| other.0 == owner)
        };
        let slot_of = |owner: u8, nth: u8| slot_at(owner, nth, 100);
        let mut held: Vec<_> = (0..64)
            .filter_map(|nth| slot_of(1, nth))
            .map(|(slot, _)| slot)
            .collect();
        assert_eq!(held.len(), 48);
        let others: Vec<_> = (2..20).filter_map(|owner| slot_of(owner, 0)).collect();
        assert_eq!(others.len(), 16, "each finds one, until all are in use");
        // An own slot is evicted after its time, though others are free.
        drop(others);
        slots.take_where(|key| key.0 != 1);
        for slot in &held {
            slot.current.store(Some(Arc::new(0)));
        }
        held.truncate(47);
        assert!(slot_of(1, 100).is_none(), "used a short while ago");
        assert!(slot_at(1, 100, 1100).is_some(), "in place of its own");
        assert_eq!((slots.open_count(), slots.map.read().len()), (47, 48));
        // A small number of slots has no shares.
        let few: KeyedSlots<(u8, u8), u8> = KeyedSlots::new(3, 1000);
        let all: Vec<_> = (0..4)
            .filter_map(|nth| few.slot_of(&(1, nth), 1, |other| other.0 == 1))
            .collect();
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn slot_without_a_living_value_makes_room_at_once() {
        let slots = KeyedSlots::new(2, 50).with_end(|is_over: &bool| *is_over);
        // The opening of a value failed, and another value is over.
        let opening = slots.slot(&1, 100).unwrap().0;
        let over = slots.slot(&2, 100).unwrap().0;
        over.current.store(Some(Arc::new(false)));
        assert_eq!(slots.open_count(), 1);
        assert!(slots.slot(&3, 101).is_none(), "one is being opened");
        drop(opening);
        let alive = slots.slot(&3, 101).unwrap().0;
        alive.current.store(Some(Arc::new(false)));
        over.current.store(Some(Arc::new(true)));
        drop((alive, over));
        assert_eq!(slots.open_count(), 1);
        assert!(slots.free_slot(&4, 102).is_some(), "no value is evicted");
        assert!(!slots.is_filled(&2) && slots.is_filled(&3));
    }

    #[test]
    fn value_that_is_kept_is_not_taken_out() {
        let slots: KeyedSlots<u8, u8> = KeyedSlots::new(3, 0);
        for key in [1, 2] {
            let slot = slots.slot(&key, 0).unwrap().0;
            slot.current.store(Some(Arc::new(key)));
        }
        slots.slot(&3, 0).unwrap();
        assert_eq!(
            slots.take_unless(|_| true, |value| **value == 1),
            [2.into()]
        );
        assert!(slots.is_filled(&1) && slots.map.read().len() == 1);
    }

    #[test]
    fn slot_that_was_taken_out_is_not_the_one_of_its_key() {
        let slots: KeyedSlots<u8, u8> = KeyedSlots::new(2, 0);
        let old = slots.slot(&1, 0).unwrap().0;
        assert!(slots.holds(&1, &old) && !slots.holds(&2, &old));
        slots.take_where(|_| true);
        assert!(!slots.holds(&1, &old));
        let new = slots.slot(&1, 0).unwrap().0;
        assert!(slots.holds(&1, &new) && !slots.holds(&1, &old));
    }

    #[test]
    fn removed_slot_makes_room_and_drops_its_value() {
        let slots: KeyedSlots<u8, u8> = KeyedSlots::new(1, 50);
        let slot = slots.slot(&1, 0).unwrap().0;
        let value = Arc::new(1);
        slot.current.store(Some(value.clone()));
        assert!(slots.free_slot(&2, 0).is_none());
        slots.remove_slot(&2);
        assert!(slots.is_filled(&1));
        slots.remove_slot(&1);
        assert!(slots.free_slot(&2, 0).is_some());
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn only_the_given_value_is_removed() {
        let slot: KeyedSlot<u8> = KeyedSlot::default();
        let (old, new) = (Arc::new(1), Arc::new(2));
        slot.current.store(Some(new.clone()));
        slot.remove(&old);
        assert!(slot.current.load().is_some());
        slot.remove(&new);
        assert!(slot.current.load().is_none());
    }
}
