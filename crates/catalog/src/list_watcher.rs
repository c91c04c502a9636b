//! The background task that follows one upstream's list in one capability class. It opens a watch,
//! walks, waits for a change, and walks again. When the watch is lost, it opens another.
//!
//! It alone writes its feed. Whichever way the upstream fails, the feed keeps the last good items
//! until they are too old.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::{Instant, sleep_until, timeout};
use weir_core::clean;
use weir_core::content_version::ContentVersion;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::ListDigests;
use weir_core::telemetry::{instruments, unix_seconds};
use weir_core::upstream::{ListKind, ListKinds, ListWatch, ServerDescription};

use super::announced_lists::{FollowingWalk, list_digest};
use super::context::CatalogContext;
use super::followed_upstream::FollowedUpstream;
use super::ingest::{DefinitionOwner, ListOrigin, ingest};
use super::late_confirmations::LateConfirmations;
use super::list_feed::{FeedState, ListFeed, ListSnapshot};
use super::pace::{Backoff, RefreshPacer, jittered};
use super::view::Freshness;
use super::walk::{WalkResult, or_not_offered, walk};
use super::walk_span::WalkSpan;

/// The task's state. It ends when its future is dropped.
pub(super) struct ListWatcher {
    works: Arc<CatalogContext>,
    followed: Arc<FollowedUpstream>,
    feed: Arc<ListFeed>,
    pace: RefreshPacer,
    backoff: Backoff,
    /// The time to drop the last good items, while the upstream cannot be asked.
    expiry: Option<Instant>,
    /// The lists that the upstream announced as changed, until they were walked.
    changed_lists: ListKinds,
    /// Announcements that other replicas have not confirmed yet.
    late: LateConfirmations,
    /// The tools of the config that were not listed, as last logged.
    unlisted_tools: Vec<String>,
}

impl ListWatcher {
    pub(super) fn new(
        works: Arc<CatalogContext>,
        followed: Arc<FollowedUpstream>,
        feed: Arc<ListFeed>,
    ) -> Self {
        let settings = &works.settings;
        let pace = RefreshPacer::new(settings.refresh);
        let backoff = Backoff::new(settings.reopen_first, settings.reopen_most);
        let (expiry, said, absent) = (None, ListKinds::default(), Vec::new());
        let mut watcher = Self {
            works,
            followed,
            feed,
            pace,
            backoff,
            expiry,
            changed_lists: said,
            late: LateConfirmations::default(),
            unlisted_tools: absent,
        };
        if watcher.feed.snapshot().state == FeedState::Stale {
            watcher.start_grace();
        }
        watcher
    }

    /// Follows the upstream until dropped.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let opening = self.feed.begin_walk(true);
            let opened = self.open().await;
            let began = Instant::now();
            let failure = match opened {
                Ok(mut watch) => self.follow(&mut *watch).await,
                Err(failure) => {
                    self.feed.end_walk(opening);
                    failure
                }
            };
            if began.elapsed() >= self.works.settings.reopen_calm {
                self.backoff.reset();
            }
            self.handle_loss(&failure);
            let wait = self.backoff.next(&*self.works.ports.random);
            let (feed, gate) = (self.feed.clone(), self.pace.gate(Instant::now()));
            let pause = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = feed.walk_now.notified() => {}
                    () = async {
                        feed.wait_for_need().await;
                        sleep_until(gate).await;
                    } => {}
                }
            };
            self.expiring(pause).await;
        }
    }

    async fn open(&mut self) -> Result<Box<dyn ListWatch>, Failure> {
        let time = self
            .followed
            .server
            .open_time(self.works.settings.open_time);
        let opening = timeout(time, self.followed.server.clone().watch(self.feed.class));
        match self.expiring(opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::new(
                FailureKind::TimedOut,
                "the server did not open a connection for lists in time",
            )),
        }
    }

    /// Walks, and walks again on every cause, until the watch is lost.
    async fn follow(&mut self, watch: &mut dyn ListWatch) -> Failure {
        loop {
            let gate = sleep_until(self.pace.gate(Instant::now()));
            self.expiring(gate).await;
            self.pace.begin(Instant::now());
            let is_own = !self.changed_lists.is_empty() || self.feed.peek().walks == 0;
            let following = self.feed.begin_walk(is_own);
            let refreshed = self.refresh(watch, following).await;
            self.feed.end_walk(following);
            if let Err(failure) = refreshed {
                return failure;
            }
            match self.cause_or_repeat(watch).await {
                Ok(said) => self.changed_lists = said,
                Err(failure) => return failure,
            }
        }
    }

    async fn refresh(
        &mut self,
        watch: &mut dyn ListWatch,
        following: FollowingWalk,
    ) -> Result<(), Failure> {
        let walking = WalkSpan::begin(&self.works);
        let (works, feed) = (self.works.clone(), self.feed.clone());
        let walked = self
            .walk(
                &mut walking.wrap_watch(&works, &feed.upstream, watch),
                following,
            )
            .await;
        walking.end(&feed.upstream, feed.class, &walked);
        walked
    }

    async fn walk(
        &mut self,
        watch: &mut dyn ListWatch,
        following: FollowingWalk,
    ) -> Result<(), Failure> {
        let mut about = watch.about().clone();
        about.instructions = about
            .instructions
            .map(|text| clean::instructions(&self.feed.upstream, text));
        let about = Arc::new(about);
        let mut lists: [ListSnapshot; 4] = Default::default();
        let mut redefined = 0;
        for kind in ListKind::ALL {
            let (list, changed) = self.list(watch, &about, kind).await?;
            self.report(kind, &list.items, list.truncated);
            lists[kind as usize] = list;
            redefined += changed;
        }
        self.warn_of_unlisted(&lists[ListKind::Tools as usize]);
        let digests = self.announce(&lists, following).await;
        let since = self.works.wall();
        self.expiry = None;
        let said = std::mem::take(&mut self.changed_lists);
        self.feed.publish(|snapshot| {
            for kind in ListKind::ALL.into_iter().filter(|kind| said.has(*kind)) {
                snapshot.change_counts[kind as usize] += 1;
            }
            let truncated = |lists: &[ListSnapshot; 4]| lists.each_ref().map(|list| list.truncated);
            if snapshot.state != FeedState::Fresh || truncated(&snapshot.lists) != truncated(&lists)
            {
                snapshot.since = since;
            }
            snapshot.state = FeedState::Fresh;
            for (new, old) in lists.iter_mut().zip(&snapshot.lists) {
                new.offers |= old.offers;
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
        if self.feed.class == weir_core::CapabilityClass::BASE {
            instruments()
                .catalog_last_walk
                .record(unix_seconds(since), &[self.label()]);
        }
        Ok(())
    }

    /// Announces changed lists to the other replicas, before the clients of this one are notified.
    /// Returns the digests of the lists.
    async fn announce(
        &mut self,
        lists: &[ListSnapshot; 4],
        following: FollowingWalk,
    ) -> [ContentVersion; 4] {
        let Some(announcements) = &self.works.ports.announcements else {
            return Default::default();
        };
        let before = self.feed.snapshot();
        let digests = ListKind::ALL.map(|kind| {
            let (new, old) = (&lists[kind as usize], before.list(kind));
            if Arc::ptr_eq(&new.items, &old.items) {
                before.digests[kind as usize]
            } else {
                list_digest(&new.items)
            }
        });
        let is_news = digests != before.digests || before.walks == 0;
        if let Some(hops) = following.hops().filter(|_| is_news) {
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
        let walked = if is_asked_for {
            let rules = self.followed.rules();
            let walking = timeout(
                self.works.settings.walk_time,
                walk(watch, kind, &rules.given.walk),
            );
            match self.expiring(walking).await {
                Ok(walked) => or_not_offered(walked)?,
                Err(_) => {
                    return Err(Failure::new(
                        FailureKind::TimedOut,
                        "the server did not give its lists in time",
                    ));
                }
            }
        } else {
            WalkResult::not_offered()
        };
        let (truncated, public) = (walked.truncated, walked.public);
        let offers = declares || walked.is_known;
        let freshness = self.freshness(walked.ttl, !offers || about.notifies_of.has(kind));
        let before = self.feed.snapshot().list(kind).items.clone();
        let origin = ListOrigin {
            upstream: &self.feed.upstream,
            kind,
            definitions: DefinitionOwner::Shared,
        };
        let ingested = ingest(&self.works, origin, walked.items, before).await?;
        let (items, rejected) = (ingested.items, ingested.rejected);
        let listing = ListSnapshot {
            items,
            truncated,
            freshness,
            public,
            offers,
            is_asked_for,
            rejected,
        };
        Ok((listing, ingested.redefined))
    }

    /// The same as [`Self::cause`]. Meanwhile it has clients notified once more of lists that another
    /// replica got late.
    async fn cause_or_repeat(&mut self, watch: &mut dyn ListWatch) -> Result<ListKinds, Failure> {
        let mut late = std::mem::take(&mut self.late);
        let caused = {
            let mut cause = pin!(self.cause(watch));
            loop {
                tokio::select! {
                    biased;
                    caused = &mut cause => break caused,
                    kinds = late.next() => self.feed.repeat_notifications(kinds),
                }
            }
        };
        self.late = late;
        caused
    }

    /// Waits for a reason to walk again: the upstream announces a change of the returned lists, an
    /// operator asks, another replica has other lists, or it is time to look.
    async fn cause(&self, watch: &mut dyn ListWatch) -> Result<ListKinds, Failure> {
        let about = watch.about();
        let poll = self.followed.rules().given.poll;
        let snapshot = self.feed.snapshot();
        // A list that the server has without declaring it has no change notifications.
        let offers: ListKinds = ListKind::ALL
            .into_iter()
            .filter(|kind| snapshot.list(*kind).offers)
            .collect();
        let told = offers.and(about.notifies_of) == offers && !about.notifies_of.is_empty();
        let until = snapshot
            .lists
            .iter()
            .filter_map(|list| list.freshness.until)
            .min();
        let look = match (told, until) {
            (false, _) => Some(jittered(poll, &*self.works.ports.random)),
            // A promise that runs out is renewed, so that clients may go on keeping the list.
            (true, Some(until)) => {
                let left = until.saturating_duration_since(Instant::now());
                Some(jittered(left.max(poll), &*self.works.ports.random))
            }
            (true, None) => None,
        };
        let timer = async {
            match look {
                Some(wait) => tokio::time::sleep(wait).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = watch.next_change() => {
                let said = changed?;
                instruments().list_changed_in.add(1, &[self.label()]);
                Ok(said)
            }
            () = timer => Ok(ListKinds::default()),
            () = self.feed.walk_now.notified() => Ok(ListKinds::default()),
            () = self.feed.wait_for_need() => Ok(ListKinds::default()),
        }
    }

    /// Runs `work`, and drops expired items while it runs.
    async fn expiring<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        if let Some(expiry) = self.expiry {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(expiry) => {}
            }
            self.expiry = None;
            let since = self.works.wall();
            self.feed.publish(|snapshot| {
                snapshot.state = FeedState::Down;
                snapshot.since = since;
                snapshot
                    .lists
                    .iter_mut()
                    .for_each(|list| list.items = Arc::new([]));
                snapshot.digests = Default::default();
            });
            tracing::warn!(upstream = %self.feed.upstream, class = %self.feed.class, "upstream unreachable: items removed from lists");
            ListKind::ALL
                .into_iter()
                .for_each(|kind| self.report(kind, &[], None));
        }
        work.await
    }

    /// The watch could not be opened, or is gone.
    fn handle_loss(&mut self, failure: &Failure) {
        let before = self.feed.snapshot();
        let empty = before.is_empty();
        if !empty && self.expiry.is_none() {
            self.start_grace();
        }
        let state = if empty {
            FeedState::Down
        } else {
            FeedState::Stale
        };
        let cause = failure.cause();
        if before.state != state
            || !before
                .error
                .as_deref()
                .is_some_and(|before| is_same_cause(before, &cause))
        {
            tracing::warn!(
                upstream = %self.feed.upstream, class = %self.feed.class, error = cause,
                "upstream list watch failed"
            );
        }
        let since = self.works.wall();
        let error: Arc<str> = cause.into();
        self.feed.publish(|snapshot| {
            if snapshot.state != state {
                snapshot.since = since;
            }
            snapshot.state = state;
            snapshot.clear_freshness();
            snapshot.walked = true;
            snapshot.error = Some(error);
        });
        instruments().catalog_complete.record(0, &[self.label()]);
    }

    fn start_grace(&mut self) {
        self.expiry = Some(Instant::now() + self.followed.rules().given.grace);
    }

    fn freshness(&self, ttl: Option<Duration>, pushes: bool) -> Freshness {
        match ttl {
            Some(ttl) => Freshness {
                until: Some(Instant::now() + ttl.min(LONGEST_HINT)),
                ..Freshness::OPEN
            },
            None if pushes => Freshness {
                until: None,
                promise: self.works.settings.notified_ttl,
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

    fn report(
        &self,
        kind: ListKind,
        items: &[Arc<weir_core::tool::Tool>],
        truncated: Option<&'static str>,
    ) {
        // The base class speaks for the upstream; other classes would overwrite its figures.
        if self.feed.class != weir_core::CapabilityClass::BASE {
            return;
        }
        let label = KeyValue::new("kind", kind.word());
        instruments()
            .catalog_items
            .record(items.len() as u64, &[self.label(), label]);
        if kind == ListKind::Tools {
            instruments()
                .catalog_complete
                .record(u64::from(truncated.is_none()), &[self.label()]);
        }
        if let Some(guard) = truncated {
            instruments()
                .catalog_truncated
                .add(1, &[self.label(), KeyValue::new("guard", guard)]);
            tracing::warn!(upstream = %self.feed.upstream, list = kind.word(), guard, "upstream list truncated by a guard");
        }
    }

    fn label(&self) -> KeyValue {
        KeyValue::new("upstream", self.feed.upstream.as_str().to_owned())
    }
}

/// True if two causes differ in numbers only: times, ports and process ids change with each
/// attempt.
fn is_same_cause(one: &str, other: &str) -> bool {
    let without_numbers = |text: &'_ str| {
        text.chars()
            .filter(|c| !c.is_ascii_digit())
            .collect::<String>()
    };
    without_numbers(one) == without_numbers(other)
}

/// A hint longer than this has no effect, and would overflow the clock (D15).
const LONGEST_HINT: Duration = Duration::from_secs(3600);
