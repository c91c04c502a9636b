//! Settings of the catalog as a whole. Every default has its reason.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{Authorizer, Clock, ListAnnouncements, Random};

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
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self {
            first_list_wait: Duration::from_secs(2),
            change_window: Duration::from_millis(500),
            superseded_views: 16,
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
