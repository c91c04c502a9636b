//! The sealed ids that were opened last: a client repeats its own with every request, and opening it
//! costs more than finding it here.

use quick_cache::Equivalent;
use quick_cache::sync::Cache;
use weir_core::Principal;
use weir_core::port::ReplicaId;
use weir_core::seal::{Sealer, SealingKeyName};

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

/// Opened ids, by their principal and text. Texts that do not open are not kept.
pub(crate) struct OpenedIds(Cache<IdKey, OpenedId>);

#[derive(PartialEq, Eq, Hash)]
struct IdKey {
    principal: [u8; 16],
    text: Box<str>,
}

/// The same, borrowed. Both have equal hashes, because their members have.
#[derive(Hash)]
struct BorrowedIdKey<'a> {
    principal: &'a [u8; 16],
    text: &'a str,
}

impl Equivalent<IdKey> for BorrowedIdKey<'_> {
    fn equivalent(&self, key: &IdKey) -> bool {
        *self.principal == key.principal && *self.text == *key.text
    }
}

#[derive(Clone)]
struct OpenedId {
    session: NamedSession,
    /// The key that opened it: without that key, it opens no more.
    key: SealingKeyName,
}

impl Default for OpenedIds {
    fn default() -> Self {
        Self(Cache::new(MAX_OPENED_IDS))
    }
}

impl OpenedIds {
    /// The session of an id that was opened with a key that the sealer still has.
    pub(crate) fn find(
        &self,
        sealer: &Sealer,
        principal: &Principal,
        text: &str,
    ) -> Option<NamedSession> {
        let wanted = BorrowedIdKey {
            principal: principal.digest(),
            text,
        };
        let found = self.0.get(&wanted)?;
        sealer.has_key(found.key).then_some(found.session)
    }

    /// Keeps an id that was opened with `key`.
    pub(crate) fn keep(
        &self,
        principal: &Principal,
        text: &str,
        session: &NamedSession,
        key: SealingKeyName,
    ) {
        let id = IdKey {
            principal: *principal.digest(),
            text: text.into(),
        };
        let session = session.clone();
        self.0.insert(id, OpenedId { session, key });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
