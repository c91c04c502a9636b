//! The places of a queue of events: those of events on their way to the writer, and those promised
//! to allowed calls whose events are still to come.
//!
//! Both counts are one number that changes at once, so that threads cannot take the same place.

use crate::sync::{AtomicU64, Ordering};

/// One promised place; an event on its way counts 1.
const PROMISED: u64 = 1 << 32;

/// The places that are taken.
#[derive(Debug, Default)]
pub(crate) struct EventPlaces(AtomicU64);

#[derive(Clone, Copy)]
struct PlaceCounts {
    queued: usize,
    promised: usize,
}

impl EventPlaces {
    /// Promises a place for a later event. Returns if there was one within this limit.
    pub(crate) fn promise_within(&self, limit: usize) -> bool {
        let change = |counts: PlaceCounts| (counts.taken() < limit).then_some(PROMISED);
        self.change(change).is_some()
    }

    /// Reports if fewer than `limit` places are taken.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        PlaceCounts::of(self.0.load(Ordering::SeqCst)).taken() < limit
    }

    /// Promises a place, whether there is one or not.
    pub(crate) fn promise(&self) {
        self.0.fetch_add(PROMISED, Ordering::SeqCst);
    }

    /// Takes the promised place for its event. An event without a promise takes a further place.
    pub(crate) fn take_promised(&self) {
        let change = |counts: PlaceCounts| {
            let promise = if counts.promised > 0 { PROMISED } else { 0 };
            Some(1_u64.wrapping_sub(promise))
        };
        let _always_changed = self.change(change);
    }

    /// Takes a place if fewer than `limit` are taken by events, or by promises, too, if they count.
    pub(crate) fn take_within(&self, limit: usize, promises_count: bool) -> bool {
        let change = |counts: PlaceCounts| {
            let taken = if promises_count {
                counts.taken()
            } else {
                counts.queued
            };
            (taken < limit).then_some(1)
        };
        self.change(change).is_some()
    }

    /// Gives back the place of an event.
    pub(crate) fn give_back(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// The number of events on their way.
    pub(crate) fn queued(&self) -> usize {
        PlaceCounts::of(self.0.load(Ordering::SeqCst)).queued
    }

    /// Adds what `summand` returns, if it returns something.
    fn change(&self, summand: impl Fn(PlaceCounts) -> Option<u64>) -> Option<u64> {
        let changed = |counts| summand(PlaceCounts::of(counts)).map(|add| counts.wrapping_add(add));
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed)
            .ok()
    }
}

impl PlaceCounts {
    fn of(counts: u64) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            queued: count(counts % PROMISED),
            promised: count(counts / PROMISED),
        }
    }

    fn taken(self) -> usize {
        self.queued + self.promised
    }
}
