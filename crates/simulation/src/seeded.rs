//! Numbers that follow from the seed.

use std::sync::Arc;

use parking_lot::Mutex;
use weir_core::port::Random;

/// A sequence of numbers of a seed (splitmix64). Clones draw from the same sequence.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(Arc<Mutex<u64>>);

impl Seeded {
    /// The sequence of a seed for one purpose, independent of those for others.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let first = Self(Arc::new(Mutex::new(
            seed ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F),
        )));
        first.next();
        first
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// The next number of a range, both ends included.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items, which are not empty.
    pub(crate) fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        &items[index]
    }

    /// Puts the items in another order.
    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            items.swap(last, other);
        }
    }
}

impl Random for Seeded {
    fn fill(&self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }
}
