//! The lists of an upstream that another replica announced, and the walks of this replica for them:
//! at most one for each announcement, so that an upstream with different lists for different
//! connections never has replicas walk in circles.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_core::content_version::ContentVersion;
use weir_core::port::AnnouncedLists;
use weir_core::server_item::ServerItem;
use weir_core::upstream::ListKind;

/// The longest time that clients wait for the walk for an announcement, from the moment on that this
/// replica knows it.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(2);

/// The longest chain of announcements of which each is the result of a walk for the one before. A
/// server that gives another list with each walk ends it.
const MAX_HOPS: u8 = 1;

/// The newest announcement of one feed's lists.
#[derive(Debug, Default)]
pub(super) struct FeedAnnouncement {
    state: Mutex<AnnouncementState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct AnnouncementState {
    newest: Option<LearntAnnouncement>,
    /// The version of the announcement that an attempt to walk followed, well or badly.
    followed: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct LearntAnnouncement {
    lists: AnnouncedLists,
    at: Instant,
}

/// An attempt to walk, with the announcement that it follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowingWalk {
    version: Option<u64>,
    /// The hops of an announcement of its result, if the walk is for an announcement alone.
    hops: u8,
}

impl FollowingWalk {
    /// The hops of an announcement of the walk's result; absent if others must not walk for it.
    pub(super) fn hops(self) -> Option<u8> {
        (self.hops <= MAX_HOPS).then_some(self.hops)
    }
}

impl FeedAnnouncement {
    /// Takes the newest announcement. Returns the end of the clients' wait for it, if it is new and
    /// differs from the digests of this replica.
    pub(super) fn learn(
        &self,
        lists: AnnouncedLists,
        own: &[ContentVersion; 4],
        now: Instant,
    ) -> Option<Instant> {
        let mut state = self.state.lock();
        let known = state.newest.map(|newest| newest.lists.version);
        if known == Some(lists.version) {
            return None;
        }
        state.newest = Some(LearntAnnouncement { lists, at: now });
        drop(state);
        self.changed.notify_one();
        (lists.lists.digests != *own).then_some(now + MAX_WAIT)
    }

    /// Begins an attempt to walk. `is_own` is true if this replica has a reason of its own.
    pub(super) fn begin_walk(&self, own: &[ContentVersion; 4], is_own: bool) -> FollowingWalk {
        let state = self.state.lock();
        let followed = state.differing(own).filter(|_| !is_own);
        FollowingWalk {
            version: state.newest.map(|newest| newest.lists.version),
            hops: followed.map_or(0, |newest| newest.lists.lists.hops.saturating_add(1)),
        }
    }

    /// An attempt to walk has ended: no other one is made for the same announcement.
    pub(super) fn end_walk(&self, walk: FollowingWalk) {
        self.state.lock().followed = walk.version;
    }

    /// True if other lists are announced than these, and no walk followed yet.
    pub(super) fn is_behind(&self, own: &[ContentVersion; 4]) -> bool {
        self.state.lock().differing(own).is_some()
    }

    /// The end of the clients' wait for one list, if another one is announced than this replica has,
    /// no walk followed yet, and it is not over.
    pub(super) fn wait_until(
        &self,
        own: &[ContentVersion; 4],
        kind: ListKind,
        now: Instant,
    ) -> Option<Instant> {
        let at = kind as usize;
        let newest = self.state.lock().differing(own)?;
        let until = newest.at + MAX_WAIT;
        (newest.lists.lists.digests[at] != own[at] && until > now).then_some(until)
    }

    /// Waits for an announcement that needs a walk. Cancel safe.
    pub(super) async fn wait_for_need(&self, own: &[ContentVersion; 4]) {
        while !self.is_behind(own) {
            self.changed.notified().await;
        }
    }
}

impl AnnouncementState {
    /// The newest announcement, if it differs from these digests and no walk followed it.
    fn differing(&self, own: &[ContentVersion; 4]) -> Option<LearntAnnouncement> {
        self.newest.filter(|newest| {
            newest.lists.lists.digests != *own && self.followed != Some(newest.lists.version)
        })
    }
}

/// The digest of a list as its upstream gave it: of names and definitions, in order. The list of an
/// upstream without items, known or not, has the default.
pub(super) fn list_digest(items: &[std::sync::Arc<ServerItem>]) -> ContentVersion {
    if items.is_empty() {
        return ContentVersion::default();
    }
    let mut parts: Vec<&[u8]> = Vec::with_capacity(items.len() * 2);
    for tool in items {
        parts.push(tool.native.as_bytes());
        parts.push(&tool.digest.0);
    }
    ContentVersion::of(&parts)
}

#[cfg(test)]
mod tests {
    use weir_core::port::ListDigests;

    use super::*;

    fn digests(byte: u8) -> [ContentVersion; 4] {
        [ContentVersion([byte; 16]); 4]
    }

    fn announced(version: u64, byte: u8, hops: u8) -> AnnouncedLists {
        let lists = ListDigests {
            digests: digests(byte),
            hops,
        };
        AnnouncedLists { version, lists }
    }

    #[test]
    fn one_walk_is_made_for_an_announcement_whatever_it_finds() {
        let (feed, own, now) = (FeedAnnouncement::default(), digests(1), Instant::now());
        assert_eq!(feed.learn(announced(1, 1, 0), &own, now), None);
        assert!(!feed.is_behind(&own), "the same lists need no walk");
        let until = Some(now + MAX_WAIT);
        assert_eq!(feed.learn(announced(2, 2, 0), &own, now), until);
        assert!(feed.is_behind(&own));
        assert_eq!(feed.wait_until(&own, ListKind::Tools, now), until);
        let late = now + MAX_WAIT;
        assert_eq!(feed.wait_until(&own, ListKind::Tools, late), None);
        let walk = feed.begin_walk(&own, false);
        // One that is announced meanwhile needs another walk.
        assert!(feed.learn(announced(3, 3, 0), &own, now).is_some());
        feed.end_walk(walk);
        assert!(feed.is_behind(&own));
        feed.end_walk(feed.begin_walk(&own, false));
        assert!(!feed.is_behind(&own), "it was followed, though in vain");
        assert_eq!(feed.learn(announced(3, 3, 0), &own, now), None);
        assert!(!feed.is_behind(&own));
    }

    #[test]
    fn chain_of_announcements_ends_unless_a_replica_has_a_reason_of_its_own() {
        let (feed, own, now) = (FeedAnnouncement::default(), digests(1), Instant::now());
        assert_eq!(feed.begin_walk(&own, false).hops(), Some(0));
        feed.learn(announced(1, 2, 0), &own, now);
        assert_eq!(feed.begin_walk(&own, false).hops(), Some(1));
        assert_eq!(feed.begin_walk(&own, true).hops(), Some(0));
        feed.learn(announced(2, 3, 1), &own, now);
        assert_eq!(feed.begin_walk(&own, false).hops(), None);
        assert_eq!(feed.begin_walk(&own, true).hops(), Some(0));
        feed.learn(announced(3, 3, u8::MAX), &own, now);
        assert_eq!(feed.begin_walk(&own, false).hops(), None);
    }
}
