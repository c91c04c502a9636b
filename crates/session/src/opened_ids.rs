//! The sealed ids that were opened last: a client repeats its own with every request, and opening it
//! costs more than finding it here.

use quick_cache::sync::Cache;
use weir_core::Principal;
use weir_core::port::ReplicaId;
use weir_seal::{Sealer, SealingKeyName};

/// The most ids that are kept, of some 250 bytes each. Another one is opened with every request.
const MAX_OPENED_IDS: usize = 10_000;

/// A session as its id names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedSession {
    /// The id of its record.
    pub(crate) id: [u8; 16],
    /// The replica that opened it; absent if the id is random.
    pub(crate) opened_by: Option<ReplicaId>,
}

/// Opened ids, by their text. Texts that do not open are not kept.
pub(crate) struct OpenedIds(Cache<Box<str>, OpenedId>);

#[derive(Clone)]
struct OpenedId {
    session: NamedSession,
    /// The digest of the principal that it opens for.
    principal: [u8; 16],
    /// The key that opened it: without that key, it opens no more.
    key: SealingKeyName,
}

impl Default for OpenedIds {
    fn default() -> Self {
        Self(Cache::new(MAX_OPENED_IDS))
    }
}

impl OpenedIds {
    /// The session of an id that was opened for this principal, with a key that the sealer still
    /// has.
    pub(crate) fn find(
        &self,
        sealer: &Sealer,
        principal: &Principal,
        text: &str,
    ) -> Option<NamedSession> {
        let found = self.0.get(text)?;
        let is_valid = found.principal == *principal.digest() && sealer.has_key(found.key);
        is_valid.then_some(found.session)
    }

    /// Keeps an id that was opened with `key`.
    pub(crate) fn keep(
        &self,
        principal: &Principal,
        text: &str,
        session: &NamedSession,
        key: SealingKeyName,
    ) {
        let opened = OpenedId {
            session: session.clone(),
            principal: *principal.digest(),
            key,
        };
        self.0.insert(text.into(), opened);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
