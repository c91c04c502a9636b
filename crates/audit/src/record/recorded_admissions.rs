//! The admissions that have a record already, so that a repeated one does not get another.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;

/// A principal that is admitted again within this time has a record already.
const WINDOW: Duration = Duration::from_secs(3600);
/// The most entries in memory; an evicted one gets a further record.
const MAX_PRINCIPALS: usize = 65_536;

/// A principal, by its digest, admitted through a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AdmissionKey(pub(super) [u8; 16], pub(super) Option<Arc<str>>);

/// Remembers the admissions with a record.
#[derive(Debug)]
pub(super) struct RecordedAdmissions(Cache<AdmissionKey, Duration>);

impl RecordedAdmissions {
    pub(super) fn new() -> Self {
        Self(Cache::new(MAX_PRINCIPALS))
    }

    /// True if this is the first admission in the window. Two at the same moment may both be first.
    pub(super) fn is_first(&self, what: AdmissionKey, now: Duration) -> bool {
        if self
            .0
            .get(&what)
            .is_some_and(|last| now.saturating_sub(last) < WINDOW)
        {
            return false;
        }
        self.0.insert(what, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves F18.
    #[test]
    fn repeated_admission_has_one_record_in_its_window() {
        let seen = RecordedAdmissions::new();
        let who = |n| AdmissionKey([n; 16], Some("ide".into()));
        assert!(seen.is_first(who(1), Duration::ZERO));
        assert!(!seen.is_first(who(1), WINDOW - Duration::from_secs(1)));
        assert!(seen.is_first(who(1), WINDOW));
        assert!(seen.is_first(who(2), WINDOW));
        assert!(
            seen.is_first(AdmissionKey([1; 16], None), WINDOW),
            "through another client"
        );
    }
}
