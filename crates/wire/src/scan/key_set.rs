//! The set of keys of one object, for refusing duplicates.
//!
//! Most objects have few keys, so the first ones are compared one by one in place. An attacker's
//! hundred thousand keys go into an ordered tree, because no choice of keys can raise its cost.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::scan::json_members::MemberKey;

const FEW: usize = 16;

/// The keys seen so far, unescaped; borrowed if they have no escapes.
pub(super) struct ObjectKeySet<'a> {
    few: [Cow<'a, [u8]>; FEW],
    len: usize,
    many: BTreeSet<Cow<'a, [u8]>>,
}

impl Default for ObjectKeySet<'_> {
    fn default() -> Self {
        Self {
            few: [const { Cow::Borrowed(&[]) }; FEW],
            len: 0,
            many: BTreeSet::new(),
        }
    }
}

impl<'a> ObjectKeySet<'a> {
    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if !self.many.is_empty() {
            self.many.clear();
        }
    }

    /// Adds a key; false if it is present already.
    pub(super) fn insert(&mut self, key: MemberKey<'a>) -> bool {
        let key = key.unescaped();
        if self.few[..self.len].contains(&key) {
            return false;
        }
        if self.len == FEW {
            return self.many.insert(key);
        }
        self.few[self.len] = key;
        self.len += 1;
        true
    }
}
