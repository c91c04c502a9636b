//! The feed of one upstream's list in one capability class: written by its watcher alone, read by
//! all.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::names::UpstreamId;
use weir_core::port::{AnnouncedLists, ListGroup};
use weir_core::server_item::ServerItem;
use weir_core::upstream::{ListKind, ListKinds, ServerDescription};

use crate::announced_lists::{FeedAnnouncement, FollowingWalk};
use crate::list_state::{IncompleteReason, ListState};
use crate::view::Freshness;
use crate::view_rebuild::ViewRebuild;
use weir_items::ListFault;

/// One upstream's list at one moment. Immutable; cloning shares all that is large.
#[derive(Clone, Debug)]
pub(super) struct UpstreamSnapshot {
    pub(super) state: ListState,
    pub(super) since: SystemTime,
    /// By [`ListKind`].
    pub(super) lists: [ListSnapshot; 4],
    /// The digests that replicas compare, if there are several. By [`ListKind`].
    pub(super) digests: [ContentVersion; 4],
    /// The number of `list_changed` notifications of the server so far. By [`ListKind`].
    pub(super) change_counts: [u64; 4],
    /// The number of repeated notifications so far, because another replica was late. By
    /// [`ListKind`].
    pub(super) repeats: [u64; 4],
    pub(super) about: Option<Arc<ServerDescription>>,
    /// True once the first walk has ended, well or badly.
    pub(super) walked: bool,
    /// The reason for all lists being stale or down.
    pub(super) error: Option<Arc<str>>,
    /// Good walks so far.
    pub(super) walks: u64,
    /// The end of the last good one.
    pub(super) walked_at: Option<SystemTime>,
    /// Definitions that changed so far.
    pub(super) redefined: u64,
}

/// One of an upstream's lists at one moment.
#[derive(Clone, Debug)]
pub(super) struct ListSnapshot {
    pub(super) items: Arc<[Arc<ServerItem>]>,
    /// The items that were dropped because the upstream could not be asked for too long, until it
    /// gives the list again. No list shows them, and they keep their names.
    pub(super) dropped: Arc<[Arc<ServerItem>]>,
    /// The guard that cut the last walk.
    pub(super) truncated: Option<&'static str>,
    pub(super) freshness: Freshness,
    pub(super) public: bool,
    /// True if the upstream offers it, or once did.
    pub(super) offers: bool,
    /// True if the upstream declares it, and did not know its method.
    pub(super) is_missing: bool,
    /// True if the upstream was asked for it, declared or not.
    pub(super) is_asked_for: bool,
    /// Items that the last walk left out.
    pub(super) rejected: u64,
    /// The failure of the list, if the server gives its other lists. The items are those of the last
    /// good walk.
    pub(super) fault: Option<ListFault>,
}

impl Default for ListSnapshot {
    fn default() -> Self {
        Self {
            items: Arc::new([]),
            dropped: Arc::new([]),
            truncated: None,
            freshness: Freshness::NONE,
            public: false,
            offers: false,
            is_missing: false,
            is_asked_for: false,
            rejected: 0,
            fault: None,
        }
    }
}

impl ListSnapshot {
    /// Drops the items of an upstream that cannot be asked for them.
    pub(super) fn drop_items(&mut self) {
        if !self.items.is_empty() {
            self.dropped = std::mem::replace(&mut self.items, Arc::new([]));
        }
    }

    /// The items that the upstream gave last, shown or not.
    pub(super) fn last_items(&self) -> &Arc<[Arc<ServerItem>]> {
        if self.items.is_empty() {
            &self.dropped
        } else {
            &self.items
        }
    }

    /// True if no item is shown because the upstream cannot be asked.
    pub(super) fn is_dropped(&self) -> bool {
        self.items.is_empty() && !self.dropped.is_empty()
    }

    /// The time to drop its items, if it has some and its server does not give it.
    pub(super) fn expiry(&self) -> Option<Instant> {
        let fault = self.fault.as_ref().filter(|_| !self.items.is_empty());
        fault.map(|fault| fault.expiry)
    }

    /// See [`UpstreamSnapshot::shows_same`].
    fn shows_same(&self, other: &Self) -> bool {
        let Self {
            items,
            dropped,
            truncated,
            freshness,
            public,
            offers,
            is_missing,
            is_asked_for,
            rejected,
            fault,
        } = self;
        Arc::ptr_eq(items, &other.items)
            && Arc::ptr_eq(dropped, &other.dropped)
            && (truncated, freshness, public) == (&other.truncated, &other.freshness, &other.public)
            && (offers, is_missing, is_asked_for)
                == (&other.offers, &other.is_missing, &other.is_asked_for)
            && rejected == &other.rejected
            && fault.is_none()
            && other.fault.is_none()
    }

    /// The reason why the list is not whole and fresh, while its server can be asked.
    fn reason(&self, is_declared: bool) -> Option<IncompleteReason> {
        match &self.fault {
            Some(_) if self.items.is_empty() => Some(IncompleteReason::Down),
            Some(_) => Some(IncompleteReason::Stale),
            None if is_declared && !self.is_asked_for => Some(IncompleteReason::Pending),
            None => self.truncated.map(|_| IncompleteReason::Truncated),
        }
    }
}

impl UpstreamSnapshot {
    pub(super) fn list(&self, kind: ListKind) -> &ListSnapshot {
        &self.lists[kind as usize]
    }

    /// The next time to drop the items of a list that its server does not give.
    pub(super) fn list_expiry(&self) -> Option<Instant> {
        self.lists.iter().filter_map(ListSnapshot::expiry).min()
    }

    /// True if all lists are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.items.is_empty())
    }

    /// True if a list has other items than in `other`. Equal lists share their items.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        let mut pairs = self.lists.iter().zip(&other.lists);
        pairs.any(|(own, other)| !Arc::ptr_eq(&own.items, &other.items))
    }

    /// True if views and counters show this snapshot as they show `other`: only the text of its
    /// error may differ. A list without an answer counts as changed.
    fn shows_same(&self, other: &Self) -> bool {
        let Self {
            state,
            since,
            lists,
            digests,
            change_counts,
            repeats,
            about,
            walked,
            error: _,
            walks,
            walked_at,
            redefined,
        } = self;
        let mut pairs = lists.iter().zip(&other.lists);
        (state, since, walked) == (&other.state, &other.since, &other.walked)
            && (digests, change_counts, repeats)
                == (&other.digests, &other.change_counts, &other.repeats)
            && (walks, walked_at, redefined) == (&other.walks, &other.walked_at, &other.redefined)
            && about.as_ref().map(Arc::as_ptr) == other.about.as_ref().map(Arc::as_ptr)
            && pairs.all(|(own, other)| own.shows_same(other))
    }

    /// Withdraws every promise of freshness.
    pub(super) fn clear_freshness(&mut self) {
        self.lists
            .iter_mut()
            .for_each(|list| list.freshness = Freshness::NONE);
    }

    /// A snapshot without any list, or with the lists of a predecessor that had other settings.
    pub(super) fn starting(since: SystemTime, before: Option<&Self>) -> Self {
        let Some(before) = before else {
            return Self::pending(since);
        };
        if before.is_empty() {
            let mut pending = Self::pending(since);
            for (list, before) in pending.lists.iter_mut().zip(&before.lists) {
                list.dropped = before.dropped.clone();
            }
            return pending;
        }
        // A reload that changes a timeout must not make every client see the tools go and come
        // back.
        let mut snapshot = Self {
            state: ListState::Stale,
            since,
            walked: false,
            walks: 0,
            ..before.clone()
        };
        snapshot.clear_freshness();
        snapshot
    }

    fn pending(since: SystemTime) -> Self {
        Self {
            state: ListState::Pending,
            since,
            lists: Default::default(),
            digests: Default::default(),
            change_counts: [0; 4],
            repeats: [0; 4],
            about: None,
            walked: false,
            error: None,
            walks: 0,
            walked_at: None,
            redefined: 0,
        }
    }

    /// The reason why the list is not whole and fresh, as clients see it.
    pub(super) fn reason(&self, kind: ListKind) -> Option<IncompleteReason> {
        match self.state {
            ListState::Pending => Some(IncompleteReason::Pending),
            ListState::Fresh => {
                let is_declared = self
                    .about
                    .as_ref()
                    .is_some_and(|about| about.offers.has(kind));
                self.list(kind).reason(is_declared)
            }
            ListState::Stale => Some(IncompleteReason::Stale),
            ListState::Down => Some(IncompleteReason::Down),
        }
    }

    /// The start of the state that [`Self::reason`] is about.
    pub(super) fn since(&self, kind: ListKind) -> SystemTime {
        match &self.list(kind).fault {
            Some(fault) if self.state == ListState::Fresh => fault.since,
            _ => self.since,
        }
    }

    /// The cause of the failure of all lists, or else of the first one that the server does not give.
    pub(super) fn error(&self) -> Option<Arc<str>> {
        let of_list = |kind: ListKind| {
            let fault = self.list(kind).fault.as_ref()?;
            Some(format!("list of {}: {}", kind.word(), fault.error).into())
        };
        self.error
            .clone()
            .or_else(|| ListKind::ALL.into_iter().find_map(of_list))
    }
}

/// The feed that a watcher publishes to.
#[derive(Debug)]
pub(super) struct ListFeed {
    pub(super) upstream: UpstreamId,
    pub(super) class: CapabilityClass,
    /// Lists wait for the first walk until then.
    pub(super) wait_until: Instant,
    snapshot: ArcSwap<UpstreamSnapshot>,
    /// Notified if an operator wants the lists walked now.
    pub(super) walk_now: Notify,
    /// Wakes tasks that wait for the next snapshot.
    published: Notify,
    /// The newest lists that a replica announced.
    announcement: FeedAnnouncement,
    rebuild: Arc<ViewRebuild>,
}

impl ListFeed {
    /// A feed that begins with `snapshot`. Lists wait for the first walk for at most `wait`.
    pub(super) fn new(
        upstream: UpstreamId,
        class: CapabilityClass,
        wait: Duration,
        snapshot: UpstreamSnapshot,
        rebuild: Arc<ViewRebuild>,
    ) -> Self {
        Self {
            upstream,
            class,
            wait_until: Instant::now() + wait,
            snapshot: ArcSwap::from_pointee(snapshot),
            walk_now: Notify::new(),
            published: Notify::new(),
            announcement: FeedAnnouncement::default(),
            rebuild,
        }
    }

    pub(super) fn snapshot(&self) -> Arc<UpstreamSnapshot> {
        self.snapshot.load_full()
    }

    /// The same for a short look: all cores would write to the reference count of a clone.
    pub(super) fn peek(&self) -> Guard<Arc<UpstreamSnapshot>> {
        self.snapshot.load()
    }

    /// Publishes a changed snapshot, and requests that views are built again unless they would be
    /// the same: each attempt to reach a server that is down publishes its failure. Only the feed's
    /// own watcher calls this.
    pub(super) fn publish(&self, change: impl FnOnce(&mut UpstreamSnapshot)) {
        let before = self.snapshot();
        let mut next = UpstreamSnapshot::clone(&before);
        change(&mut next);
        let shows_same = next.shows_same(&before);
        self.snapshot.store(Arc::new(next));
        if !shows_same {
            // First: a request that is woken waits for the views of this snapshot.
            self.rebuild.request();
        }
        self.published.notify_waiters();
    }

    /// Has the clients of some lists notified once more. Only the feed's own watcher calls this.
    pub(super) fn repeat_notifications(&self, kinds: ListKinds) {
        self.publish(|snapshot| {
            for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
                snapshot.repeats[kind as usize] += 1;
            }
        });
    }

    /// Waits for a snapshot that `holds` accepts. Cancel safe.
    pub(super) async fn wait_for(&self, holds: impl Fn(&UpstreamSnapshot) -> bool) {
        loop {
            let mut published = pin!(self.published.notified());
            // A snapshot that is published between the check and the wait counts.
            published.as_mut().enable();
            if holds(&self.snapshot.load()) {
                return;
            }
            published.await;
        }
    }

    /// The name under which replicas announce the lists.
    pub(super) fn group(&self) -> ListGroup {
        ListGroup {
            upstream: self.upstream.clone(),
            class: self.class,
        }
    }

    /// See [`FeedAnnouncement::learn`].
    pub(super) fn learn(&self, lists: AnnouncedLists, now: Instant) -> Option<Instant> {
        self.announcement.learn(lists, &self.peek().digests, now)
    }

    /// See [`FeedAnnouncement::is_behind`].
    pub(super) fn is_behind(&self) -> bool {
        self.announcement.is_behind(&self.peek().digests)
    }

    /// See [`FeedAnnouncement::wait_until`].
    pub(super) fn behind_until(&self, kind: ListKind, now: Instant) -> Option<Instant> {
        self.announcement
            .wait_until(&self.peek().digests, kind, now)
    }

    /// Begins an attempt to walk; it ends with [`Self::end_walk`], or with its future. Only the
    /// feed's own watcher calls this.
    pub(super) fn begin_walk(&self, is_own: bool) -> FollowingWalk {
        self.announcement.begin_walk(&self.peek().digests, is_own)
    }

    /// Ends an attempt to walk, after the snapshot is published.
    pub(super) fn end_walk(&self, walk: FollowingWalk) {
        let was_behind = self.is_behind();
        self.announcement.end_walk(walk);
        if was_behind {
            self.rebuild.request();
        }
        self.published.notify_waiters();
    }

    /// Waits for an announcement that needs a walk. Only the feed's own watcher calls this. Cancel
    /// safe.
    pub(super) async fn wait_for_need(&self) {
        let own = self.peek().digests;
        self.announcement.wait_for_need(&own).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn views_are_built_again_only_for_what_they_show() {
        let rebuild = Arc::new(ViewRebuild::default());
        let feed = ListFeed::new(
            UpstreamId::new("one").expect("an id"),
            CapabilityClass::BASE,
            Duration::ZERO,
            UpstreamSnapshot::starting(SystemTime::UNIX_EPOCH, None),
            rebuild.clone(),
        );
        let fail = |error: &str| {
            feed.publish(|snapshot| {
                snapshot.state = ListState::Down;
                snapshot.walked = true;
                snapshot.error = Some(error.into());
            });
        };
        fail("refused at port 1");
        let built = rebuild.begin();
        assert_eq!(built, 1);
        fail("refused at port 2");
        assert_eq!(rebuild.begin(), built, "an upstream that is still down");
        assert_eq!(feed.peek().error.as_deref(), Some("refused at port 2"));
        let changes: [fn(&mut UpstreamSnapshot); 7] = [
            |snapshot| snapshot.since += Duration::from_secs(1),
            |snapshot| snapshot.lists[0].items = Arc::new([]),
            |snapshot| snapshot.lists[1].freshness = Freshness::OPEN,
            |snapshot| snapshot.lists[2].offers = true,
            |snapshot| snapshot.change_counts[3] += 1,
            |snapshot| snapshot.repeats[0] += 1,
            |snapshot| snapshot.walks += 1,
        ];
        for (nth, change) in (1..).zip(changes) {
            feed.publish(change);
            assert_eq!(rebuild.begin(), built + nth, "change {nth}");
        }
    }
}
