//! The background task that follows one upstream's list in one capability class. It opens a watch,
//! walks, waits for a change, and walks again. When the watch is lost, it opens another.
//!
//! It alone writes its feed, which keeps the last good items of an upstream that fails for a time.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::{Instant, sleep_until, timeout};
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::{Backoff, jittered};
use weir_core::telemetry::instruments;
use weir_core::upstream::{ListKind, ListKinds, ListWatch};

use crate::announced_lists::FollowingWalk;
use crate::context::CatalogContext;
use crate::followed_upstream::FollowedUpstream;
use crate::late_confirmations::LateConfirmations;
use crate::list_feed::{ListFeed, ListSnapshot};
use crate::list_state::ListState;
use crate::walk_span::WalkSpan;
use weir_items::{RefreshPacer, WalkTrigger, announced_until, is_same_cause, requested_pause};

mod upstream_walk;

/// The longest time between two walks of lists whose changes the server announces: it may announce
/// one on a stream that weir does not have, or not at all.
const LOOK_INTERVAL: Duration = Duration::from_secs(3600);

/// The time for detecting a server's revision and opening a watch on it.
pub const OPEN_TIME: Duration = Duration::from_secs(30);
/// The time for one walk over all pages, so that a dripping server is noticed.
pub const WALK_TIME: Duration = Duration::from_secs(60);
/// A watch that held this long was good: the next wait is short again.
pub(crate) const REOPEN_CALM: Duration = Duration::from_secs(10);

/// The waits between attempts to reach an upstream: the first at most 100 ms long, doubling up to
/// 30 s, with full jitter.
pub(crate) fn reopening_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(100), Duration::from_secs(30))
}

/// The task's state. It ends when its future is dropped.
pub(super) struct ListWatcher {
    context: Arc<CatalogContext>,
    followed: Arc<FollowedUpstream>,
    feed: Arc<ListFeed>,
    pace: RefreshPacer,
    backoff: Backoff,
    /// The time to drop the last good items, while the upstream cannot be asked.
    expiry: Option<Instant>,
    /// The lists that the upstream announced as changed, until they were walked.
    changed_lists: ListKinds,
    /// The lists without an answer in time: they are asked for last.
    late_lists: ListKinds,
    /// The pauses before lists are asked for again that the server refused. By [`ListKind`].
    retries: [Backoff; 4],
    /// Announcements that other replicas have not confirmed yet.
    late: LateConfirmations,
    /// The tools of the config that were not listed, as last logged.
    unlisted_tools: Vec<String>,
}

impl ListWatcher {
    pub(super) fn new(
        context: Arc<CatalogContext>,
        followed: Arc<FollowedUpstream>,
        feed: Arc<ListFeed>,
    ) -> Self {
        let mut watcher = Self {
            pace: RefreshPacer::default(),
            backoff: reopening_backoff(),
            retries: std::array::from_fn(|_| reopening_backoff()),
            context,
            followed,
            feed,
            expiry: None,
            changed_lists: ListKinds::default(),
            late_lists: ListKinds::default(),
            late: LateConfirmations::default(),
            unlisted_tools: Vec::new(),
        };
        if watcher.feed.snapshot().state == ListState::Stale {
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
                Ok(mut watch) => {
                    let Err(failure) = self.follow(&mut *watch).await;
                    failure
                }
                Err(failure) => {
                    self.feed.end_walk(opening);
                    failure
                }
            };
            if began.elapsed() >= REOPEN_CALM {
                self.backoff.reset();
            }
            // Connections and child processes that end with this process, or move, are no loss.
            self.context.wait_while_ending().await;
            self.handle_loss(&failure);
            let grace = self.followed.rules().given.grace;
            let (now, least) = (Instant::now(), requested_pause(&failure, grace));
            let wait = self.backoff.next(&*self.context.ports.random).max(least);
            let (feed, gate) = (
                self.feed.clone(),
                self.pace.requested_gate(now).max(now + least),
            );
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
        let time = self.followed.server.open_time(OPEN_TIME);
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
    async fn follow(&mut self, watch: &mut dyn ListWatch) -> Result<Infallible, Failure> {
        let mut trigger = WalkTrigger::Requested;
        loop {
            trigger = self.wait_for_pace(watch, trigger).await?;
            self.pace.begin(Instant::now(), trigger);
            let before = self.feed.snapshot();
            let is_own = !self.changed_lists.is_empty() || self.feed.peek().walks == 0;
            let following = self.feed.begin_walk(is_own);
            let refreshed = self.refresh(watch, following, trigger).await;
            self.feed.end_walk(following);
            let has_changed = self.feed.peek().differs_from(&before);
            self.pace.end(Instant::now(), has_changed);
            refreshed?;
            trigger = self.trigger_or_repeat(watch).await?;
        }
    }

    /// Waits until the next walk may begin. After a reported change it takes further reports, and a
    /// request of an operator or for another replica shortens the wait.
    async fn wait_for_pace(
        &mut self,
        watch: &mut dyn ListWatch,
        trigger: WalkTrigger,
    ) -> Result<WalkTrigger, Failure> {
        let poll = self.followed.rules().given.poll;
        let (now, feed) = (Instant::now(), self.feed.clone());
        let (gate, requested) = (self.pace.gate(now, poll), self.pace.requested_gate(now));
        let WalkTrigger::Announced(kinds) = trigger else {
            self.expiring(sleep_until(gate.min(requested))).await;
            return Ok(trigger);
        };
        self.changed_lists = kinds;
        let pause = async {
            tokio::select! {
                () = sleep_until(gate) => {}
                () = async {
                    tokio::select! {
                        () = feed.walk_now.notified() => {}
                        () = feed.wait_for_need() => {}
                    }
                    sleep_until(requested).await;
                } => {}
            }
        };
        let label = self.label();
        let count = || {
            instruments()
                .list_changed_in
                .add(1, std::slice::from_ref(&label))
        };
        let announced = announced_until(pause, watch, kinds, count);
        self.changed_lists = self.expiring(announced).await?;
        Ok(WalkTrigger::Announced(self.changed_lists))
    }

    async fn refresh(
        &mut self,
        watch: &mut dyn ListWatch,
        following: FollowingWalk,
        trigger: WalkTrigger,
    ) -> Result<(), Failure> {
        let walking = WalkSpan::begin(&self.context);
        let (context, feed) = (self.context.clone(), self.feed.clone());
        let walked = self
            .walk(
                &mut walking.wrap_watch(&context, &feed.upstream, watch),
                following,
                trigger,
            )
            .await;
        walking.end(&feed.upstream, feed.class, &walked);
        walked
    }

    /// The same as [`Self::next_trigger`]. Meanwhile it has clients notified once more of lists that
    /// another replica got late, and drops expired items.
    async fn trigger_or_repeat(
        &mut self,
        watch: &mut dyn ListWatch,
    ) -> Result<WalkTrigger, Failure> {
        let mut late = std::mem::take(&mut self.late);
        let triggered = {
            let mut trigger = pin!(self.next_trigger(watch));
            loop {
                let expiry = self.feed.peek().list_expiry();
                tokio::select! {
                    biased;
                    triggered = &mut trigger => break triggered,
                    kinds = late.next() => self.feed.repeat_notifications(kinds),
                    () = sleep_until_any(expiry) => self.drop_expired_lists(),
                }
            }
        };
        self.late = late;
        triggered
    }

    /// Waits for a reason to walk again ([`WalkTrigger`]). It is also time to look once a call of a
    /// listed item failed as unknown.
    async fn next_trigger(&self, watch: &mut dyn ListWatch) -> Result<WalkTrigger, Failure> {
        let about = watch.about();
        let poll = self.followed.rules().given.poll;
        let snapshot = self.feed.snapshot();
        // A list that the server has without declaring it has no change notifications. One that it
        // declares and does not have may come without any.
        let offers: ListKinds = ListKind::ALL
            .into_iter()
            .filter(|kind| snapshot.list(*kind).offers)
            .collect();
        let announces_all = offers.and(about.notifies_of) == offers
            && !about.notifies_of.is_empty()
            && !snapshot.lists.iter().any(|list| list.is_missing);
        let until = snapshot
            .lists
            .iter()
            .filter_map(|list| list.freshness.until)
            .min();
        let poll_wait = match (announces_all, until) {
            (false, _) => jittered(poll, &*self.context.ports.random),
            // A promise that runs out is renewed, so that clients may go on keeping the list.
            (true, Some(until)) => {
                let left = until.saturating_duration_since(Instant::now());
                jittered(left.max(poll), &*self.context.ports.random)
            }
            (true, None) => jittered(poll.max(LOOK_INTERVAL), &*self.context.ports.random),
        };
        let soonest = tokio::time::sleep(poll);
        let stale = async {
            self.followed.stale_lists.received().await;
            soonest.await;
        };
        let faults = snapshot.lists.iter().filter_map(|list| list.fault.as_ref());
        let retry_at = faults.map(|fault| fault.retry_at).min();
        tokio::select! {
            changed = watch.next_change() => {
                let kinds = changed?;
                instruments().list_changed_in.add(1, &[self.label()]);
                Ok(WalkTrigger::Announced(kinds))
            }
            () = tokio::time::sleep(poll_wait) => Ok(WalkTrigger::Poll),
            () = stale => Ok(WalkTrigger::Poll),
            () = sleep_until_any(retry_at) => Ok(WalkTrigger::Retry),
            () = self.feed.walk_now.notified() => Ok(WalkTrigger::Requested),
            () = self.feed.wait_for_need() => Ok(WalkTrigger::Requested),
        }
    }

    /// Runs `work`, and drops expired items while it runs.
    async fn expiring<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            let of_lists = self.feed.peek().list_expiry();
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until_any(self.expiry) => self.drop_items(),
                () = sleep_until_any(of_lists) => self.drop_expired_lists(),
            }
        }
    }

    /// Drops the items of an upstream that could not be asked for the grace.
    fn drop_items(&mut self) {
        self.expiry = None;
        let since = self.context.wall();
        self.feed.publish(|snapshot| {
            snapshot.state = ListState::Down;
            snapshot.since = since;
            snapshot.lists.iter_mut().for_each(ListSnapshot::drop_items);
            snapshot.digests = Default::default();
        });
        tracing::warn!(upstream = %self.feed.upstream, class = %self.feed.class, "upstream unreachable: items removed from lists");
        ListKind::ALL
            .into_iter()
            .for_each(|kind| self.report_items(kind, 0));
    }

    /// The watch could not be opened, or is gone.
    fn handle_loss(&mut self, failure: &Failure) {
        let before = self.feed.snapshot();
        let empty = before.is_empty();
        if !empty && self.expiry.is_none() {
            self.start_grace();
        }
        let state = if empty {
            ListState::Down
        } else {
            ListState::Stale
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
        let since = self.context.wall();
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
        if !self.followed.is_stopped() {
            instruments().catalog_complete.record(0, &[self.label()]);
        }
    }

    fn start_grace(&mut self) {
        self.expiry = Some(Instant::now() + self.followed.rules().given.grace);
    }

    fn report_items(&self, kind: ListKind, count: usize) {
        if self.speaks_for_upstream() {
            let label = KeyValue::new("kind", kind.word());
            instruments()
                .catalog_items
                .record(count as u64, &[self.label(), label]);
        }
    }

    fn report(&self, kind: ListKind, list: &ListSnapshot) {
        if !self.speaks_for_upstream() {
            return;
        }
        self.report_items(kind, list.items.len());
        if kind == ListKind::Tools {
            let is_complete = list.truncated.is_none() && list.fault.is_none();
            instruments()
                .catalog_complete
                .record(u64::from(is_complete), &[self.label()]);
        }
        if let Some(guard) = list.truncated.filter(|_| list.fault.is_none()) {
            instruments()
                .catalog_truncated
                .add(1, &[self.label(), KeyValue::new("guard", guard)]);
            tracing::warn!(upstream = %self.feed.upstream, list = kind.word(), guard, "upstream list truncated by a guard");
        }
    }

    /// True for the base class of an upstream that is still followed; other classes would overwrite its
    /// figures.
    fn speaks_for_upstream(&self) -> bool {
        self.feed.class == weir_core::CapabilityClass::BASE && !self.followed.is_stopped()
    }

    fn label(&self) -> KeyValue {
        KeyValue::new("upstream", self.feed.upstream.as_str().to_owned())
    }
}

/// Waits for a time, if there is one; otherwise for ever.
async fn sleep_until_any(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
