//! The times of the last writes to the shared store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use weir_core::instant::millis;
use weir_core::port::{Clock, RecordKey};

use crate::record_seal::{RecordName, record_name};

/// Remembered writes, one for each record. A forgotten one is written earlier than necessary.
const MAX_WRITTEN: usize = 262_144;

/// The time to live of records that were never written from here, such as those that another
/// process handed over: until their next use, which writes their own.
const FIRST_TTL: Duration = Duration::from_secs(3600);

/// The last write of each record, or the last that was queued.
pub(crate) struct WriteTimes {
    clock: Arc<dyn Clock>,
    written: Cache<RecordName, LastWrite>,
    /// The time to live of the last write of any record, in milliseconds.
    usual_ttl: AtomicU64,
}

#[derive(Clone, Copy)]
struct LastWrite {
    at: Duration,
    ttl: Duration,
}

impl WriteTimes {
    /// No writes yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            written: Cache::new(MAX_WRITTEN),
            usual_ttl: AtomicU64::new(FIRST_TTL.as_millis() as u64),
        }
    }

    /// Takes note of a write now.
    pub(crate) fn note(&self, key: &RecordKey, ttl: Duration) {
        let at = self.clock.monotonic();
        self.written.insert(record_name(key), LastWrite { at, ttl });
        self.usual_ttl.store(millis(ttl), Ordering::Relaxed);
    }

    /// Forgets a record: its next use writes it.
    pub(crate) fn forget(&self, key: &RecordKey) {
        self.written.remove(&record_name(key));
    }

    /// Reports if the time to live of a record was last written a quarter of it ago, or another one.
    pub(crate) fn is_due(&self, key: &RecordKey, ttl: Duration) -> bool {
        let now = self.clock.monotonic();
        let last = self.written.get(&record_name(key));
        last.is_none_or(|last| last.ttl != ttl || now.saturating_sub(last.at) >= ttl / 4)
    }

    /// The last time to live of a record. For a forgotten one it is that of another record: they
    /// come from one setting.
    pub(crate) fn ttl(&self, key: &RecordKey) -> Duration {
        let usual = || Duration::from_millis(self.usual_ttl.load(Ordering::Relaxed));
        let last = self.written.get(&record_name(key));
        last.map_or_else(usual, |last| last.ttl)
    }
}

#[cfg(test)]
mod tests {
    use weir_core::Principal;
    use weir_testkit::FakeClock;

    use super::*;

    #[test]
    fn time_to_live_is_due_after_a_quarter_of_it() {
        let clock = FakeClock::new();
        let times = WriteTimes::new(Arc::new(clock.clone()));
        let key = |id| RecordKey {
            principal: Principal::owner(None),
            id: [id; 16],
        };
        let ttl = Duration::from_secs(40);
        assert!(times.is_due(&key(1), ttl));
        times.note(&key(1), ttl);
        clock.advance(Duration::from_secs(9));
        assert!(!times.is_due(&key(1), ttl) && times.is_due(&key(1), ttl / 2));
        clock.advance(Duration::from_secs(1));
        assert!(times.is_due(&key(1), ttl));
        assert_eq!((times.ttl(&key(1)), times.ttl(&key(2))), (ttl, ttl));
        times.note(&key(1), ttl);
        times.forget(&key(1));
        assert!(times.is_due(&key(1), ttl));
    }
}
