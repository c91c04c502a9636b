//! The versions of the lists that each session was last notified of. A client whose GET stream was
//! away is notified of the changes in between.
//!
//! Kept here and not in the session's record: it changes with every change of a list, and only this
//! replica's streams announce those. A client that reconnects to another replica is notified of
//! later changes only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_core::SessionKey;
use weir_core::content_version::ContentVersion;
use weir_core::upstream::ListKind;

/// The largest number of sessions in one part. Above it, an entry is evicted: that client may miss
/// one notification.
const SESSIONS_PER_PART: usize = 4096;
/// Parts, to reduce contention between sessions.
const NOTIFIED_PARTS: usize = 16;

type ListVersions = [Option<ContentVersion>; ListKind::ALL.len()];

/// The list versions that each session was last notified of. An entry goes with its session.
#[derive(Default)]
pub(super) struct NotifiedLists([Mutex<HashMap<SessionKey, ListVersions>>; NOTIFIED_PARTS]);

impl NotifiedLists {
    pub(super) fn last(&self, key: &SessionKey, list: ListKind) -> Option<ContentVersion> {
        self.part(key).get(key)?[list as usize]
    }

    pub(super) fn record(&self, key: SessionKey, list: ListKind, version: ContentVersion) {
        let mut part = self.part(&key);
        if part.len() >= SESSIONS_PER_PART && !part.contains_key(&key) {
            let any = part.keys().next().copied();
            any.map(|any| part.remove(&any));
        }
        part.entry(key).or_default()[list as usize] = Some(version);
    }

    /// The lists of all sessions.
    pub(super) fn all(&self) -> Vec<(SessionKey, Vec<Option<ContentVersion>>)> {
        let of = |part: &Mutex<HashMap<SessionKey, ListVersions>>| {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.iter()
                .map(|(key, lists)| (*key, lists.to_vec()))
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    pub(super) fn forget(&self, key: &SessionKey) {
        self.part(key).remove(key);
    }

    fn part(&self, key: &SessionKey) -> MutexGuard<'_, HashMap<SessionKey, ListVersions>> {
        self.0[usize::from(key.0[0]) % NOTIFIED_PARTS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notified_lists_are_kept_apart_bounded_and_forgotten() {
        let told = NotifiedLists::default();
        let key = |number: u32| {
            let mut key = [0; 16];
            key[8..12].copy_from_slice(&number.to_be_bytes());
            SessionKey(key)
        };
        told.record(key(0), ListKind::Tools, ContentVersion([1; 16]));
        told.record(key(0), ListKind::Prompts, ContentVersion([2; 16]));
        assert_eq!(
            told.last(&key(0), ListKind::Tools),
            Some(ContentVersion([1; 16]))
        );
        assert_eq!(
            (
                told.last(&key(0), ListKind::Templates),
                told.last(&key(1), ListKind::Tools)
            ),
            (None, None)
        );
        told.forget(&key(0));
        assert_eq!(told.last(&key(0), ListKind::Tools), None);
        for number in 0..10_000 {
            told.record(key(number), ListKind::Tools, ContentVersion::default());
        }
        assert_eq!(told.part(&key(0)).len(), SESSIONS_PER_PART);
        assert_eq!(
            told.last(&key(9_999), ListKind::Tools),
            Some(ContentVersion::default())
        );
    }
}
