//! What the operator may set about the catalog as a whole. Every default has its reason.

use std::sync::Arc;
use std::time::Duration;

use super::session_lists::SessionListTable;
use crate::port::{Authorizer, Clock, Random};

/// Settings of a [`super::Catalog`].
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogSettings {
    /// How long a list may wait for first walks after a start or a reload. Longer makes a client's
    /// start slow; shorter shows it a list that changes at once.
    pub first_list_wait: Duration,
    /// At most one change is announced to a client in this time; the first at once, the last
    /// always.
    pub change_window: Duration,
    /// How many superseded views of an endpoint stay for cursors that point into them.
    pub pinned: usize,
    /// How long they stay: a client that takes longer between two pages starts again.
    pub pinned_for: Duration,
    /// What weir promises of a list it has from a server without cache hints that tells of its
    /// changes.
    pub push_promise: Duration,
    /// Capability classes watched at one upstream at the same time; further ones see the base list.
    pub classes: usize,
    /// A class nobody has asked for in this time is not watched any more.
    pub class_idle: Duration,
    /// How often lists are walked again when the upstream reports changes.
    pub refresh: RefreshPace,
    /// Waits between attempts to reach an upstream: the first at most this long, doubling, with
    /// full jitter.
    pub reopen_first: Duration,
    /// The longest such wait.
    pub reopen_most: Duration,
    /// A watch that held this long was good: the next wait is short again.
    pub reopen_calm: Duration,
    /// To find out what a server speaks and to open a watch on it.
    pub open_time: Duration,
    /// For one walk over all pages, so that a dripping server is found out.
    pub walk_time: Duration,
    /// How long calls in flight may run on when a reload or the shutdown takes their upstream away.
    pub retire_grace: Duration,
    /// A client that got a `nextCursor` and has not used it in this time is counted as gone.
    pub abandoned_after: Duration,
}

/// How fast an upstream that reports changes is walked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshPace {
    /// Least time between the starts of two walks.
    pub least: Duration,
    /// That many walks in a row without a pause of `calm` are taken for flapping: from there on the
    /// time doubles.
    pub patience: u32,
    /// The pause that ends a row.
    pub calm: Duration,
    /// Where the doubling stops. The last change is seen after this time at the latest.
    pub most: Duration,
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self {
            first_list_wait: Duration::from_secs(2),
            change_window: Duration::from_millis(500),
            pinned: 16,
            pinned_for: Duration::from_secs(600),
            push_promise: Duration::from_secs(5),
            classes: 16,
            class_idle: Duration::from_secs(300),
            refresh: RefreshPace::default(),
            reopen_first: Duration::from_millis(100),
            reopen_most: Duration::from_secs(30),
            reopen_calm: Duration::from_secs(10),
            open_time: Duration::from_secs(30),
            walk_time: Duration::from_secs(60),
            retire_grace: Duration::from_secs(30),
            abandoned_after: Duration::from_secs(600),
        }
    }
}

impl Default for RefreshPace {
    /// Two walks a second at most; ten seconds of that are a storm.
    fn default() -> Self {
        Self {
            least: Duration::from_millis(500),
            patience: 20,
            calm: Duration::from_secs(5),
            most: Duration::from_secs(4),
        }
    }
}

/// What a catalog needs of the world.
#[derive(Clone)]
pub struct CatalogPorts {
    /// For times that operators read. Waiting is tokio's, so that tests can pause it.
    pub clock: Arc<dyn Clock>,
    /// For jitter, and for the nonces of cursors.
    pub random: Arc<dyn Random>,
    /// For what each principal sees.
    pub authorizer: Arc<dyn Authorizer>,
    /// For the lists of single sessions, which upstreams hear of.
    pub session_lists: Arc<SessionListTable>,
}

impl std::fmt::Debug for CatalogPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CatalogPorts")
    }
}
