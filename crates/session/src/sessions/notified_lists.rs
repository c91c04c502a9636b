//! The versions of the lists that each session was last notified of. A client whose GET stream was
//! away is notified of the changes in between.
//!
//! Kept here and not in the session's record: it changes with every change of a list, and only this
//! replica's streams announce those. A client that reconnects to another replica is notified of
//! later changes only.

use quick_cache::sync::{Cache, EntryAction, EntryResult};
use weir_core::SessionKey;
use weir_core::content_version::ContentVersion;
use weir_core::upstream::ListKind;

/// The largest number of sessions. Above it, an entry is evicted: that client may miss one
/// notification.
const MAX_NOTIFIED_SESSIONS: usize = 65_536;

/// Stands for the version of a list that the client knows, if it may be any.
pub const UNKNOWN_VERSION: ContentVersion = ContentVersion([0; 16]);

type ListVersions = [Option<ContentVersion>; ListKind::ALL.len()];

/// The list versions that each session was last notified of. An entry goes with its session.
pub(super) struct NotifiedLists(Cache<SessionKey, ListVersions>);

impl Default for NotifiedLists {
    fn default() -> Self {
        Self(Cache::new(MAX_NOTIFIED_SESSIONS))
    }
}

impl NotifiedLists {
    pub(super) fn last(&self, key: &SessionKey, list: ListKind) -> Option<ContentVersion> {
        self.0.get(key)?[list as usize]
    }

    pub(super) fn record(&self, key: SessionKey, list: ListKind, version: ContentVersion) {
        let entry = self.0.entry(&key, None, |_, lists| {
            lists[list as usize] = Some(version);
            EntryAction::Retain(())
        });
        if let EntryResult::Vacant(guard) = entry {
            let mut lists = ListVersions::default();
            lists[list as usize] = Some(version);
            // Fails only if the entry was removed meanwhile: the session has ended.
            let _ = guard.insert(lists);
        }
    }

    /// The lists of all sessions.
    pub(super) fn all(&self) -> Vec<(SessionKey, Vec<Option<ContentVersion>>)> {
        self.0
            .iter()
            .map(|(key, lists)| (key, lists.to_vec()))
            .collect()
    }

    pub(super) fn forget(&self, key: &SessionKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notified_lists_are_kept_apart_bounded_and_forgotten() {
        let notified = NotifiedLists::default();
        let key = |number: u32| {
            let mut key = [0; 16];
            key[8..12].copy_from_slice(&number.to_be_bytes());
            SessionKey(key)
        };
        notified.record(key(0), ListKind::Tools, ContentVersion([1; 16]));
        notified.record(key(0), ListKind::Prompts, ContentVersion([2; 16]));
        assert_eq!(
            notified.last(&key(0), ListKind::Tools),
            Some(ContentVersion([1; 16]))
        );
        assert_eq!(
            (
                notified.last(&key(0), ListKind::Templates),
                notified.last(&key(1), ListKind::Tools)
            ),
            (None, None)
        );
        notified.forget(&key(0));
        assert_eq!(notified.last(&key(0), ListKind::Tools), None);
        for number in 0..100_000 {
            notified.record(key(number), ListKind::Tools, ContentVersion::default());
            assert_eq!(
                notified.last(&key(number), ListKind::Tools),
                Some(ContentVersion::default()),
                "the newest is kept"
            );
        }
        assert!(notified.all().len() <= MAX_NOTIFIED_SESSIONS);
    }
}
