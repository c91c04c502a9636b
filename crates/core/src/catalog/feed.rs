//! What is known of one upstream's list in one capability class: written by its watcher alone, read by everybody.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::tool::Tool;
use super::view::Freshness;
use crate::capability::CapabilityClass;
use crate::names::UpstreamId;
use crate::upstream::About;

/// How an upstream's list stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not known yet.
    Pending,
    /// As the upstream last said, and weir would hear of a change.
    Fresh,
    /// As the upstream once said; it cannot be asked now.
    Stale,
    /// Nothing is known any more.
    Down,
}

/// One upstream's list at one moment. Immutable; cloning shares all that is large.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) state: State,
    pub(super) since: SystemTime,
    pub(super) tools: Arc<[Arc<Tool>]>,
    pub(super) about: Option<Arc<About>>,
    /// The guard that cut the last walk.
    pub(super) truncated: Option<&'static str>,
    pub(super) freshness: Freshness,
    pub(super) public: bool,
    /// True once the first walk has ended, whether well or badly.
    pub(super) walked: bool,
    /// True if the upstream offers tools, or once did.
    pub(super) offers: bool,
    /// Why it is stale or down.
    pub(super) error: Option<Arc<str>>,
    /// Good walks so far.
    pub(super) walks: u64,
    /// Items that the last walk left out.
    pub(super) rejected: u64,
    /// Definitions that changed so far.
    pub(super) redefined: u64,
}

impl Snapshot {
    fn pending(since: SystemTime) -> Self {
        Self {
            state: State::Pending,
            since,
            tools: Arc::new([]),
            about: None,
            truncated: None,
            freshness: Freshness::NONE,
            public: false,
            walked: false,
            offers: false,
            error: None,
            walks: 0,
            rejected: 0,
            redefined: 0,
        }
    }

    /// Why the list is not whole and fresh, as clients are told.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match self.state {
            State::Pending => Some("pending"),
            State::Fresh => self.truncated.map(|_| "truncated"),
            State::Stale => Some("stale"),
            State::Down => Some("down"),
        }
    }
}

/// The place where a watcher publishes.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) upstream: UpstreamId,
    pub(super) class: CapabilityClass,
    /// Lists wait for the first walk until then.
    pub(super) wait_until: Instant,
    snapshot: ArcSwap<Snapshot>,
    bell: Arc<Notify>,
}

impl Feed {
    /// A feed about which nothing is known, or only what a predecessor with other settings knew.
    pub(super) fn new(
        (upstream, class): (UpstreamId, CapabilityClass),
        wait: Duration,
        since: SystemTime,
        before: Option<&Snapshot>,
        bell: Arc<Notify>,
    ) -> Self {
        let mut snapshot = Snapshot::pending(since);
        if let Some(before) = before.filter(|before| !before.tools.is_empty()) {
            // A reload that changes a timeout must not make every client see the tools go and come back.
            snapshot = Snapshot { state: State::Stale, since, walked: false, walks: 0, ..before.clone() };
            snapshot.freshness = Freshness::NONE;
        }
        Self { upstream, class, wait_until: Instant::now() + wait, snapshot: ArcSwap::from_pointee(snapshot), bell }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Publishes a changed snapshot and says that views have to be built again. Only the feed's own watcher calls this.
    pub(super) fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut next = Snapshot::clone(&self.snapshot.load());
        change(&mut next);
        self.snapshot.store(Arc::new(next));
        self.bell.notify_one();
    }
}
