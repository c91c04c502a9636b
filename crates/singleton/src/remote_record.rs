//! The record of an upstream as another replica runs it, for operators.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use weir_core::upstream::{UpstreamHealth, UpstreamOwner};
use weir_core::{CapabilityClass, Failure};
use weir_wire::Revision;

use crate::watch_form::UpstreamFacts;

/// The record of an upstream as another replica runs it.
#[derive(Debug, Default)]
pub(crate) struct RemoteRecord {
    /// The bits of the classes that are carried to the server.
    carries: AtomicU16,
    state: Mutex<RemoteState>,
}

#[derive(Debug, Default)]
struct RemoteState {
    facts: UpstreamFacts,
    /// True if the last attempt to reach it failed.
    is_down: bool,
    /// The time at which that changed last.
    changed: Option<SystemTime>,
    last_error: Option<(String, SystemTime)>,
}

impl RemoteState {
    fn set_down(&mut self, is_down: bool) {
        if std::mem::replace(&mut self.is_down, is_down) != is_down {
            self.changed = Some(SystemTime::now());
        }
    }
}

impl RemoteRecord {
    /// Takes note of an answer of the owner.
    pub(crate) fn note_reached(&self) {
        self.state.lock().set_down(false);
    }

    /// Takes note of a failure to reach the owner, or the server there.
    pub(crate) fn note_failure(&self, failure: &Failure) {
        let mut state = self.state.lock();
        state.set_down(true);
        state.last_error = Some((failure.cause(), SystemTime::now()));
    }

    /// Takes note of the facts of the server.
    pub(crate) fn note_facts(&self, facts: UpstreamFacts) {
        self.carries.store(facts.carries, Ordering::Relaxed);
        self.state.lock().facts = facts;
    }

    /// The classes that are carried to the server, as far as its owner has sent them.
    pub(crate) fn carries(&self) -> CapabilityClass {
        CapabilityClass::from_bits(self.carries.load(Ordering::Relaxed))
    }

    /// The health, with so many calls in flight from this replica.
    pub(crate) fn health(&self, in_flight: usize, owner: Option<UpstreamOwner>) -> UpstreamHealth {
        let state = self.state.lock();
        let revision = |text: &Option<String>| {
            let revision = text.as_deref().and_then(Revision::parse);
            revision.map(Revision::as_str)
        };
        let (last_error, last_error_at) = state.last_error.clone().unzip();
        UpstreamHealth {
            revision: revision(&state.facts.revision),
            second_revision: revision(&state.facts.second_revision),
            down: state.is_down,
            down_changed: state.changed,
            last_error,
            last_error_at,
            in_flight,
            owner,
            ..UpstreamHealth::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::FailureKind;

    use super::*;

    #[test]
    fn failure_stays_after_the_owner_is_reached_again() {
        let record = RemoteRecord::default();
        record.note_failure(&Failure::new(FailureKind::Unavailable, "no owner"));
        assert!(record.health(0, None).down);
        record.note_reached();
        let health = record.health(3, None);
        assert!(!health.down && health.last_error_at.is_some());
        assert_eq!(
            (health.in_flight, health.last_error.as_deref()),
            (3, Some("no owner"))
        );
    }

    #[test]
    fn facts_of_an_unknown_revision_are_left_out() {
        let record = RemoteRecord::default();
        record.note_facts(UpstreamFacts {
            carries: CapabilityClass::ROOTS.bits(),
            revision: Some("2025-11-25".to_owned()),
            second_revision: Some("3000-01-01".to_owned()),
        });
        let health = record.health(0, None);
        assert_eq!(
            (health.revision, health.second_revision),
            (Some("2025-11-25"), None)
        );
        assert_eq!(record.carries(), CapabilityClass::ROOTS);
    }
}
