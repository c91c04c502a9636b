//! The instances that have the upstream sessions of client sessions.

use std::collections::HashSet;

use quick_cache::sync::Cache;
use weir_core::SessionKey;

/// The most remembered sessions at least.
const MIN_REMEMBERED: usize = 1024;

/// The instance of each client session, by position. The least recently used sessions beyond the
/// bound are forgotten: their next call opens a session at any instance.
#[derive(Debug)]
pub(crate) struct SessionAffinity(Cache<SessionKey, usize>);

impl SessionAffinity {
    /// Makes it for as many sessions as all instances may hold.
    pub(crate) fn new(most: usize) -> Self {
        Self(Cache::new(most.max(MIN_REMEMBERED)))
    }

    /// Returns the session's instance.
    pub(crate) fn get(&self, session: SessionKey) -> Option<usize> {
        self.0.get(&session)
    }

    /// Returns the session's instance, or makes `index` the session's instance. Calls that come at
    /// once get the same one.
    pub(crate) fn get_or_bind(&self, session: SessionKey, index: usize) -> usize {
        let bound = self
            .0
            .get_or_insert_with(&session, || Ok::<_, std::convert::Infallible>(index));
        bound.unwrap_or(index)
    }

    /// Forgets the session's instance, if it still is `index`.
    pub(crate) fn unbind(&self, session: SessionKey, index: usize) {
        self.0.remove_if(&session, |bound| *bound == index);
    }

    /// Forgets ended sessions.
    pub(crate) fn forget(&self, sessions: &HashSet<SessionKey>) {
        for session in sessions {
            self.0.remove(session);
        }
    }
}
