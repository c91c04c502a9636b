//! One walk over the lists of an upstream. A list that the server does not give fails alone; the walk
//! fails with the connection, or if the server gives no list.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout};
use weir_core::clean;
use weir_core::content_version::ContentVersion;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::ListDigests;
use weir_core::port::jittered;
use weir_core::telemetry::{instruments, unix_seconds};
use weir_core::upstream::{ListKind, ListKinds, ListWatch, ServerDescription};

use crate::announced_lists::{FollowingWalk, list_digest};
use crate::ingest::{DefinitionOwner, ListOrigin, ingest};
use crate::list_feed::{ListFeed, ListSnapshot};
use crate::list_state::ListState;
use crate::list_watcher::{ListWatcher, WALK_TIME};
use crate::view::Freshness;
use crate::walk::{WalkResult, walk};
use weir_items::{
    ListFault, WalkTrigger, is_late, is_of_list_alone, is_same_cause, pause_after_late,
    requested_pause,
};

/// A hint longer than this has no effect, and would overflow the clock (D15).
const MAX_HINT: Duration = Duration::from_secs(3600);

/// The time that weir promises for a list of a server without cache hints, if the server announces
/// its changes.
const NOTIFIED_TTL: Duration = Duration::from_secs(5);

/// The lists of a walk so far. Those that it has not read yet are as they were.
struct WalkedLists {
    about: Arc<ServerDescription>,
    lists: [ListSnapshot; 4],
    /// The lists that the server gave.
    given: ListKinds,
    /// The first failure of a list alone.
    failure: Option<Failure>,
    redefined: u64,
}

impl ListWatcher {
    pub(super) async fn walk(
        &mut self,
        watch: &mut dyn ListWatch,
        following: FollowingWalk,
        trigger: WalkTrigger,
    ) -> Result<(), Failure> {
        let mut about = watch.about().clone();
        about.instructions = about
            .instructions
            .map(|text| clean::instructions(&self.feed.upstream, text));
        let mut walked = WalkedLists {
            about: Arc::new(about),
            lists: self.feed.snapshot().lists.clone(),
            given: ListKinds::default(),
            failure: None,
            redefined: 0,
        };
        self.read_lists(watch, &mut walked, trigger).await?;
        let WalkedLists {
            about,
            mut lists,
            given,
            failure,
            redefined,
        } = walked;
        if let Some(failure) = failure.filter(|_| given.is_empty() && trigger != WalkTrigger::Retry)
        {
            return Err(failure);
        }
        self.warn_of_unlisted(&lists[ListKind::Tools as usize]);
        let digests = self.announce(&lists, following).await;
        let since = self.context.wall();
        self.expiry = None;
        let announced = std::mem::take(&mut self.changed_lists);
        let is_whole = lists.iter().all(|list| list.fault.is_none());
        self.feed.publish(|snapshot| {
            for kind in ListKind::ALL
                .into_iter()
                .filter(|kind| announced.has(*kind))
            {
                snapshot.change_counts[kind as usize] += 1;
            }
            let truncated = |lists: &[ListSnapshot; 4]| lists.each_ref().map(|list| list.truncated);
            if snapshot.state != ListState::Fresh || truncated(&snapshot.lists) != truncated(&lists)
            {
                snapshot.since = since;
            }
            snapshot.state = ListState::Fresh;
            for (new, old) in lists.iter_mut().zip(&snapshot.lists) {
                new.offers |= old.offers;
                if new.fault.is_some() {
                    // They may have expired during the walk.
                    new.items = old.items.clone();
                    new.dropped = old.dropped.clone();
                }
            }
            snapshot.lists = lists;
            snapshot.digests = digests;
            snapshot.redefined += redefined;
            snapshot.about = Some(about);
            snapshot.walked = true;
            snapshot.error = None;
            snapshot.walks += 1;
            snapshot.walked_at = Some(since);
        });
        if is_whole && self.speaks_for_upstream() {
            instruments()
                .catalog_last_walk
                .record(unix_seconds(since), &[self.label()]);
        }
        Ok(())
    }

    /// Reads the lists one after the other, those last that may take long.
    async fn read_lists(
        &mut self,
        watch: &mut dyn ListWatch,
        walked: &mut WalkedLists,
        trigger: WalkTrigger,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let mut order = ListKind::ALL;
        order.sort_by_key(|kind| {
            let is_declared = walked.about.offers.has(*kind);
            let has_failed = walked.lists[*kind as usize].fault.is_some();
            (!is_declared, has_failed || self.late_lists.has(*kind))
        });
        for kind in order {
            let fault = walked.lists[kind as usize].fault.as_ref();
            if trigger.leaves(kind, fault, began) {
                continue;
            }
            let about = walked.about.clone();
            let listed = {
                let (feed, since) = (self.feed.clone(), self.context.wall());
                let shows_early = self.shows_early();
                let early_view = sleep(self.context.settings.first_list_wait / 2);
                let mut listing = pin!(self.list(watch, &about, kind));
                tokio::select! {
                    biased;
                    listed = &mut listing => listed,
                    () = early_view, if shows_early && !walked.given.is_empty() => {
                        show_early(&feed, walked, since);
                        listing.await
                    }
                }
            };
            match listed {
                Ok((list, redefined)) => {
                    self.late_lists = self.late_lists.without(kind);
                    self.retries[kind as usize].reset();
                    self.report(kind, &list);
                    if list.offers {
                        walked.given = walked.given.with(kind);
                    }
                    walked.lists[kind as usize] = list;
                    walked.redefined += redefined;
                }
                Err(failure) => {
                    if is_late(&failure) {
                        self.late_lists = self.late_lists.with(kind);
                        // Before another list was given, the server as a whole may hang.
                        if walked.given.is_empty() && trigger != WalkTrigger::Retry {
                            return Err(failure);
                        }
                    }
                    if !is_of_list_alone(&failure) {
                        return Err(failure);
                    }
                    let list = self.failed_list(kind, &walked.lists[kind as usize], &failure);
                    self.report(kind, &list);
                    walked.lists[kind as usize] = list;
                    walked.failure.get_or_insert(failure);
                }
            }
        }
        Ok(())
    }

    /// True if lists are shown before the walk ends. Other replicas are told of a change first, at the
    /// end of a walk; before the first one, no client knows a list.
    fn shows_early(&self) -> bool {
        self.context.ports.announcements.is_none() || self.feed.peek().walks == 0
    }

    /// Announces changed lists to the other replicas, before the clients of this one are notified.
    /// Returns the digests of the lists.
    async fn announce(
        &mut self,
        lists: &[ListSnapshot; 4],
        following: FollowingWalk,
    ) -> [ContentVersion; 4] {
        let Some(announcements) = &self.context.ports.announcements else {
            return Default::default();
        };
        let before = self.feed.snapshot();
        let digests = ListKind::ALL.map(|kind| {
            let (new, old) = (&lists[kind as usize], before.list(kind));
            // Replicas compare the lists that the server gives.
            if new.fault.is_some() || Arc::ptr_eq(&new.items, &old.items) {
                before.digests[kind as usize]
            } else {
                list_digest(&new.items)
            }
        });
        let has_changed = digests != before.digests || before.walks == 0;
        if let Some(hops) = following.hops().filter(|_| has_changed) {
            let group = self.feed.group();
            let announced = announcements.announce(&group, ListDigests { digests, hops });
            match announced.await {
                Ok(made) => {
                    let changed = ListKind::ALL.into_iter();
                    let changed = changed
                        .filter(|kind| digests[*kind as usize] != before.digests[*kind as usize]);
                    self.late
                        .push(made.and_then(|made| made.late), changed.collect());
                }
                Err(error) => {
                    tracing::debug!(upstream = %group.upstream, %error, "lists not announced to other replicas yet");
                }
            }
        }
        digests
    }

    /// Walks one list. Returns it, and the number of redefined items.
    async fn list(
        &mut self,
        watch: &mut dyn ListWatch,
        about: &ServerDescription,
        kind: ListKind,
    ) -> Result<(ListSnapshot, u64), Failure> {
        let declares = about.offers.has(kind);
        let is_asked_for = declares || self.followed.undeclared().has(kind);
        let before = self.feed.snapshot().list(kind).items.clone();
        let was_given = !before.is_empty();
        let walked = if is_asked_for {
            let rules = self.followed.rules();
            let walking = timeout(
                WALK_TIME,
                walk(watch, kind, &rules.given.walk, declares && was_given),
            );
            let walked = match self.expiring(walking).await {
                Ok(walked) => walked,
                Err(_) => Err(Failure::new(
                    FailureKind::TimedOut,
                    "the server did not give its lists in time",
                )),
            };
            match walked {
                Err(failure) if !declares && !was_given => self.undeclared_failed(kind, failure)?,
                walked => walked?,
            }
        } else {
            WalkResult::not_offered()
        };
        let (truncated, public) = (walked.truncated, walked.public);
        let offers = declares || walked.is_known;
        let freshness = self.freshness(walked.ttl, !offers || about.notifies_of.has(kind));
        let origin = ListOrigin {
            upstream: &self.feed.upstream,
            kind,
            definitions: DefinitionOwner::Shared,
        };
        let ingested = ingest(&self.context, origin, walked.items, before).await?;
        let (items, rejected) = (ingested.items, ingested.rejected);
        let listing = ListSnapshot {
            items,
            dropped: Arc::new([]),
            truncated,
            freshness,
            public,
            offers,
            // Templates are declared with resources: many servers have none.
            is_missing: declares && !walked.is_known && kind != ListKind::Templates,
            is_asked_for,
            rejected,
            fault: None,
        };
        Ok((listing, ingested.redefined))
    }

    /// A server that fails for a list that it does not declare has no such list.
    ///
    /// # Errors
    ///
    /// The failure, if the connection may be lost.
    fn undeclared_failed(&self, kind: ListKind, failure: Failure) -> Result<WalkResult, Failure> {
        let is_answered = is_of_list_alone(&failure) && !is_late(&failure);
        if !is_answered {
            self.followed.give_up_undeclared(kind);
        }
        tracing::debug!(
            upstream = %self.feed.upstream, list = kind.word(), error = failure.cause(),
            "undeclared upstream list not read"
        );
        if is_of_list_alone(&failure) {
            Ok(WalkResult::not_offered())
        } else {
            Err(failure)
        }
    }

    /// The list after a failure of it alone: the last good items stay for the grace.
    fn failed_list(
        &mut self,
        kind: ListKind,
        before: &ListSnapshot,
        failure: &Failure,
    ) -> ListSnapshot {
        let (now, given) = (Instant::now(), &self.followed.rules().given);
        let cause = failure.cause();
        let known = before.fault.as_ref();
        // The failure of all lists is that of the upstream, which was logged for this one.
        let logged = known.map(|fault| fault.error.clone());
        let logged = logged.or_else(|| self.feed.peek().error.clone());
        if !logged.is_some_and(|logged| is_same_cause(&logged, &cause)) {
            tracing::warn!(
                upstream = %self.feed.upstream, class = %self.feed.class, list = kind.word(),
                error = cause, "upstream list not read"
            );
        }
        let failures = known.map_or(0, |fault| fault.failures.saturating_add(1));
        let pause = if is_late(failure) {
            let pause = pause_after_late(given.poll, failures);
            jittered(pause, &*self.context.ports.random)
        } else {
            self.retries[kind as usize].next(&*self.context.ports.random)
        };
        let fault = ListFault {
            error: cause.into(),
            since: known.map_or_else(|| self.context.wall(), |fault| fault.since),
            expiry: known.map_or(now + given.grace, |fault| fault.expiry),
            retry_at: now + pause.max(requested_pause(failure, given.grace)),
            failures,
        };
        ListSnapshot {
            freshness: Freshness::NONE,
            offers: true,
            is_missing: false,
            is_asked_for: true,
            fault: Some(fault),
            ..before.clone()
        }
    }

    /// Drops the last good items of each list that the server did not give for the grace.
    pub(super) fn drop_expired_lists(&self) {
        let now = Instant::now();
        self.feed.publish(|snapshot| {
            for kind in ListKind::ALL {
                let list = &mut snapshot.lists[kind as usize];
                if list.expiry().is_none_or(|expiry| expiry > now) {
                    continue;
                }
                list.drop_items();
                tracing::warn!(
                    upstream = %self.feed.upstream, class = %self.feed.class, list = kind.word(),
                    "upstream list not read: items removed"
                );
                self.report_items(kind, 0);
            }
        });
    }

    fn freshness(&self, ttl: Option<Duration>, pushes: bool) -> Freshness {
        match ttl {
            Some(ttl) => Freshness {
                until: Some(Instant::now() + ttl.min(MAX_HINT)),
                ..Freshness::OPEN
            },
            None if pushes => Freshness {
                until: None,
                promise: NOTIFIED_TTL,
            },
            None => Freshness::NONE,
        }
    }

    /// Logs, once, the tools of the config that the server does not list: their rules have no
    /// effect.
    fn warn_of_unlisted(&mut self, tools: &ListSnapshot) {
        if self.feed.class != weir_core::CapabilityClass::BASE || tools.truncated.is_some() {
            return;
        }
        let is_listed = |native: &str| tools.items.iter().any(|tool| &*tool.native == native);
        let absent = self.followed.rules().absent(is_listed);
        if !absent.is_empty() && absent != self.unlisted_tools {
            let named = absent.join(", ");
            tracing::warn!(upstream = %self.feed.upstream, tools = named, "configured tools not listed by upstream");
        }
        self.unlisted_tools = absent;
    }
}

/// Publishes the lists that a walk has read, while it waits for the others.
fn show_early(feed: &ListFeed, walked: &WalkedLists, since: SystemTime) {
    feed.publish(|snapshot| {
        for kind in ListKind::ALL
            .into_iter()
            .filter(|kind| walked.given.has(*kind))
        {
            snapshot.lists[kind as usize] = walked.lists[kind as usize].clone();
        }
        if snapshot.state != ListState::Fresh {
            snapshot.since = since;
        }
        snapshot.state = ListState::Fresh;
        snapshot.about = Some(walked.about.clone());
        snapshot.error = None;
    });
}
