//! Lists that are behind those that another replica announced: the announcements reach the feeds, and
//! a client's request waits for the walk, so that it gets the list of which it was told elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::{Instant, timeout, timeout_at};
use weir_core::capability::CapabilityClass;
use weir_core::names::EndpointId;
use weir_core::port::AnnouncementMap;
use weir_core::telemetry::instruments;
use weir_core::upstream::ListKind;

use crate::Catalog;
use crate::announced_lists::MAX_WAIT;
use crate::list_feed::ListFeed;

impl Catalog {
    /// True while a list may be behind one that another replica announced. Takes no trip.
    #[must_use]
    pub fn may_be_behind(&self) -> bool {
        let Some(announcements) = &self.context.ports.announcements else {
            return false;
        };
        let until = self.context.behind_until.load(Ordering::Acquire);
        (until > 0 && until > self.context.millis()) || announcements.is_looking()
    }

    /// Waits until an endpoint's list is not behind any more, for at most [`MAX_WAIT`] after
    /// this replica learnt of the announcement. Cancel safe.
    pub(crate) async fn catch_up(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) {
        if let Some(announcements) = &self.context.ports.announcements
            && announcements.is_looking()
        {
            announcements.wait_for_look().await;
            // The task that takes announcements may not have run yet.
            self.learn_announced();
        }
        let behind = self.feeds_behind(endpoint, kind, class);
        let Some(until) = behind.iter().map(|(_, until)| *until).max() else {
            // A walk may have ended a moment ago, and its views are being built.
            let _in_time = timeout(MAX_WAIT, self.context.rebuild.wait_for_views()).await;
            return;
        };
        let caught_up = async {
            for (feed, _) in &behind {
                feed.wait_for(|_| feed.behind_until(kind, Instant::now()).is_none())
                    .await;
            }
            self.context.rebuild.wait_for_views().await;
        };
        let is_in_time = timeout_at(until, caught_up).await.is_ok();
        let outcome = if is_in_time {
            "caught_up"
        } else {
            "older_list"
        };
        instruments()
            .list_waits
            .add(1, &[KeyValue::new("outcome", outcome)]);
    }

    /// Takes the announcements that are known now: from then on, requests wait for the walks for them.
    pub fn learn_announced(&self) {
        if let Some(announcements) = &self.context.ports.announcements {
            let announced = announcements.watch().borrow().clone();
            self.learn(&announced);
            // Another task may have learnt of them a moment ago, and not be here yet.
            let layout = self.layout.load();
            let mut feeds = layout.sources.iter().flat_map(|source| source.feeds());
            if feeds.any(|feed| feed.is_behind()) {
                self.look_for_lists_behind();
            }
        }
    }

    /// Has requests of the next moments look for lists that are behind.
    fn look_for_lists_behind(&self) {
        let until = self.context.millis() + MAX_WAIT.as_millis() as u64;
        self.context.behind_until.fetch_max(until, Ordering::AcqRel);
    }

    /// Waits until no list is behind the announcements that were learnt, for at most `most`. True if a
    /// client may have got an older list since. Cancel safe.
    pub async fn follow_announced(&self, most: Duration) -> bool {
        let begun = Instant::now();
        let layout = self.layout.load_full();
        let feeds = layout.sources.iter().flat_map(|source| source.feeds());
        let behind: Vec<_> = feeds.filter(|feed| feed.is_behind()).collect();
        let followed = async {
            for feed in behind {
                feed.wait_for(|_| !feed.is_behind()).await;
            }
        };
        timeout(most, followed).await.is_err() || begun.elapsed() >= MAX_WAIT
    }

    /// The feeds of an endpoint's list that are behind, each with the end of the wait for it.
    fn feeds_behind(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Vec<(Arc<ListFeed>, Instant)> {
        let (layout, now) = (self.layout.load(), Instant::now());
        let mut behind = Vec::new();
        for source in layout.sources_of(endpoint) {
            let feed = source.feed(&self.context, class);
            let base = source.base();
            let others = (!Arc::ptr_eq(&feed, base)).then(|| base.clone());
            for feed in std::iter::once(feed).chain(others) {
                if let Some(until) = feed.behind_until(kind, now) {
                    behind.push((feed, until));
                }
            }
        }
        behind
    }

    /// Gives each feed the newest announcement of its lists.
    pub(crate) fn learn(&self, announced: &AnnouncementMap) {
        let layout = self.layout.load_full();
        let now = Instant::now();
        for feed in layout.sources.iter().flat_map(|source| source.feeds()) {
            if let Some(lists) = announced.get(&feed.group())
                && feed.learn(*lists, now).is_some()
            {
                self.look_for_lists_behind();
                tracing::debug!(
                    upstream = %feed.upstream, class = %feed.class, version = lists.version,
                    "lists of another replica differ"
                );
                // Views of lists that are behind are not to be kept.
                self.context.rebuild.request();
            }
        }
    }
}
