//! Settings of the catalog as a whole. Every default has its reason.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{Authorizer, Clock, ListAnnouncements, Random};
use weir_items::RefreshPace;

use crate::session_lists::session_list_table::SessionListTable;

/// Settings of a [`super::Catalog`].
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogSettings {
    /// The time that a list may wait for first walks after a start or a reload. A longer one makes
    /// a client's start slow; a shorter one shows it a list that changes at once.
    pub first_list_wait: Duration,
    /// At most one change is announced to a client in this time; the first at once, the last
    /// always.
    pub change_window: Duration,
    /// The number of superseded views of an endpoint that stay for cursors that point into them.
    pub superseded_views: usize,
    /// The time that they stay: a client that takes longer between two pages starts again.
    pub superseded_time: Duration,
    /// The time that weir promises for a list of a server without cache hints, if the server
    /// announces its changes.
    pub notified_ttl: Duration,
    /// Capability classes watched at one upstream at the same time; further ones see the base list.
    pub max_classes: usize,
    /// A class that no client has asked for in this time is not watched any more.
    pub class_idle: Duration,
    /// The pace of walking lists again when the upstream reports changes.
    pub refresh: RefreshPace,
    /// Waits between attempts to reach an upstream: the first at most this long, doubling, with
    /// full jitter.
    pub reopen_first: Duration,
    /// The longest such wait.
    pub reopen_most: Duration,
    /// A watch that held this long was good: the next wait is short again.
    pub reopen_calm: Duration,
    /// The time for detecting a server's revision and opening a watch on it.
    pub open_time: Duration,
    /// The time for one walk over all pages, so that a dripping server is noticed.
    pub walk_time: Duration,
    /// The time that calls in flight may run on when a reload or the shutdown takes their upstream
    /// away.
    pub retire_grace: Duration,
    /// A client that got a `nextCursor` and has not used it in this time is counted as gone.
    pub abandoned_after: Duration,
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self {
            first_list_wait: Duration::from_secs(2),
            change_window: Duration::from_millis(500),
            superseded_views: 16,
            superseded_time: Duration::from_secs(600),
            notified_ttl: Duration::from_secs(5),
            max_classes: 16,
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

/// The ports that a catalog uses.
#[derive(Clone, Debug)]
pub struct CatalogPorts {
    /// For times that operators read. Waiting is tokio's, so that tests can pause it.
    pub clock: Arc<dyn Clock>,
    /// For jitter, and for the nonces of cursors.
    pub random: Arc<dyn Random>,
    /// Decides the items that each principal sees.
    pub authorizer: Arc<dyn Authorizer>,
    /// The lists of single sessions; upstreams keep them up to date.
    pub session_lists: Arc<SessionListTable>,
    /// The lists that other replicas announce; absent for a single one.
    pub announcements: Option<Arc<dyn ListAnnouncements>>,
}
