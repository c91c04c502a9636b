//! The knowledge that the shared store does not answer, so that no request waits to find it out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time between two looks if the store answers again.
const PROBE_PAUSE: Duration = Duration::from_millis(200);
/// There is no outage.
const NONE: u64 = 0;

/// An outage, from a failed command to the next one that succeeds.
#[derive(Debug, Default)]
pub struct StoreOutage {
    /// The nanoseconds of the monotonic clock at which the next look is due.
    probe_at: AtomicU64,
}

impl StoreOutage {
    /// A command failed.
    pub fn begin(&self, now: Duration) {
        let at = nanos(now + PROBE_PAUSE);
        self.probe_at.store(at, Ordering::Relaxed);
    }

    /// A command succeeded.
    pub fn end(&self) {
        self.probe_at.store(NONE, Ordering::Relaxed);
    }

    /// Reports if the store did not answer the last command.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.probe_at.load(Ordering::Relaxed) != NONE
    }

    /// True for one caller in a pause: it looks if the store answers again.
    #[must_use]
    pub fn claim_probe(&self, now: Duration) -> bool {
        let due = self.probe_at.load(Ordering::Relaxed);
        let next = nanos(now + PROBE_PAUSE);
        let is_due = due != NONE && due <= nanos(now);
        is_due
            && self
                .probe_at
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// At least 1, because 0 stands for no outage.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_in_a_pause_probes_until_a_command_succeeds() {
        let outage = StoreOutage::default();
        assert!(!outage.is_on() && !outage.claim_probe(Duration::MAX / 2));
        outage.begin(Duration::ZERO);
        assert!(outage.is_on() && !outage.claim_probe(PROBE_PAUSE / 2));
        assert!(outage.claim_probe(PROBE_PAUSE) && !outage.claim_probe(PROBE_PAUSE));
        assert!(outage.claim_probe(2 * PROBE_PAUSE));
        outage.end();
        assert!(!outage.is_on() && !outage.claim_probe(4 * PROBE_PAUSE));
    }
}
