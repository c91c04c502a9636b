//! A bounded table of named values that end.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Values by their names, up to a number of them. Times are of the monotonic clock.
pub struct ExpiringTable<V> {
    values: HashMap<Box<str>, ExpiringValue<V>>,
    most: usize,
    /// No value ends earlier. A full table is searched for ended values from then on alone: a
    /// search takes milliseconds, and every further name would begin one.
    earliest_end: Duration,
}

struct ExpiringValue<V> {
    value: V,
    ends: Duration,
}

impl<V: Default> ExpiringTable<V> {
    /// An empty table of at most `most` values.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            values: HashMap::new(),
            most,
            earliest_end: Duration::MAX,
        }
    }

    /// The value of this name, unless it has ended.
    pub fn get_mut(&mut self, name: &str, now: Duration) -> Option<&mut V> {
        let entry = self.values.get_mut(name);
        entry
            .filter(|entry| entry.ends > now)
            .map(|entry| &mut entry.value)
    }

    /// The value of this name, or a new one with this end if there is none or it has ended; absent
    /// if there is no room for it.
    pub fn get_or_insert(&mut self, name: &str, ends: Duration, now: Duration) -> Option<&mut V> {
        let fresh = || ExpiringValue {
            value: V::default(),
            ends,
        };
        if !self.values.contains_key(name) {
            if self.values.len() >= self.most && self.earliest_end <= now {
                self.remove_ended(now);
            }
            if self.values.len() >= self.most {
                return None;
            }
            self.earliest_end = self.earliest_end.min(ends);
            self.values.insert(name.into(), fresh());
        }
        let entry = self.values.get_mut(name)?;
        if entry.ends <= now {
            *entry = fresh();
        }
        Some(&mut entry.value)
    }

    fn remove_ended(&mut self, now: Duration) {
        self.values.retain(|_, entry| entry.ends > now);
        let ends = self.values.values().map(|entry| entry.ends);
        self.earliest_end = ends.min().unwrap_or(Duration::MAX);
    }
}

impl<V> fmt::Debug for ExpiringTable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExpiringTable({} values)", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn full_table_is_searched_again_only_once_a_value_has_ended() {
        let mut table = ExpiringTable::<u64>::new(3);
        for (name, ends) in [("a", 30), ("b", 10), ("c", 20)] {
            *table.get_or_insert(name, at(ends), at(0)).unwrap() += 1;
        }
        assert_eq!(table.earliest_end, at(10));
        assert!(table.get_or_insert("d", at(40), at(9)).is_none(), "full");
        assert!(table.get_mut("b", at(9)).is_some());
        assert!(table.get_mut("b", at(10)).is_none(), "it has ended");

        assert!(table.get_or_insert("d", at(40), at(10)).is_some());
        assert_eq!(table.earliest_end, at(20), "of those that are left");
        assert!(table.get_or_insert("e", at(40), at(19)).is_none(), "full");
        // An ended value begins anew in its own place.
        assert_eq!(table.get_or_insert("c", at(50), at(20)).copied(), Some(0));
        assert_eq!(table.get_or_insert("a", at(50), at(20)).copied(), Some(1));
        assert!(table.get_or_insert("e", at(40), at(20)).is_none(), "full");
        assert_eq!(table.earliest_end, at(30));
    }
}
