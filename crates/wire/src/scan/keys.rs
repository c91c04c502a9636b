//! The set of keys of one object, for refusing duplicates.
//!
//! Most objects have few keys, so the first ones are compared one by one in place; an attacker's hundred thousand go into an ordered
//! tree, whose cost no choice of keys can push up.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::view::Key;

const FEW: usize = 16;

/// Keys seen so far, compared after unescaping.
#[derive(Default)]
pub(super) struct KeySet<'a> {
    few: [Key<'a>; FEW],
    len: usize,
    many: BTreeSet<Cow<'a, [u8]>>,
}

impl<'a> KeySet<'a> {
    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if !self.many.is_empty() {
            self.many.clear();
        }
    }

    /// Adds a key; false if it is there already.
    pub(super) fn insert(&mut self, key: Key<'a>) -> bool {
        if self.few[..self.len].iter().any(|other| other.same(&key)) {
            return false;
        }
        if self.len < FEW {
            self.few[self.len] = key;
            self.len += 1;
            return true;
        }
        self.many.insert(key.unescaped())
    }
}
