//! Upstreams that an operator took out. Their items are in no list and no call of them is made.
//! They are followed as before, so that they are back at once when they are let in again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::Catalog;
use crate::failure::{Failure, FailureKind};
use crate::list_kind::ListKind;
use crate::live_calls::UPSTREAM_DISABLED;
use crate::names::{EndpointId, UpstreamId};

/// The mode of taking an upstream out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosingMode {
    /// No call and no task of it is served.
    Disabled,
    /// Running calls and tasks may end.
    Draining,
}

/// An upstream that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedUpstream {
    /// The mode.
    pub mode: ClosingMode,
    /// The time of the operator's action.
    pub since: SystemTime,
}

/// The upstreams that are taken out. Each call costs one load, nearly always of an empty map.
#[derive(Debug, Default)]
pub(super) struct ClosedUpstreams(ArcSwap<HashMap<UpstreamId, ClosedUpstream>>);

impl ClosedUpstreams {
    pub(super) fn find(&self, id: &UpstreamId) -> Option<ClosedUpstream> {
        let map = self.0.load();
        if map.is_empty() {
            None
        } else {
            map.get(id).copied()
        }
    }

    fn change(&self, change: impl Fn(&mut HashMap<UpstreamId, ClosedUpstream>)) {
        self.0.rcu(|map| {
            let mut map = HashMap::clone(map);
            change(&mut map);
            map
        });
    }
}

impl Catalog {
    /// Takes an upstream out, until [`Self::reopen`], over reloads too. Clients are notified if
    /// their list changed. Running calls are left alone. False if there is no such upstream.
    pub fn close(&self, id: &UpstreamId, how: ClosingMode) -> bool {
        let known = self.layout.load().by_id.contains_key(id);
        if known {
            let since = self.context.wall();
            self.context.closed_upstreams.change(|map| {
                map.insert(id.clone(), ClosedUpstream { mode: how, since });
            });
            self.rebuild();
        }
        known
    }

    /// Lets an upstream in again. False if it was not taken out.
    pub fn reopen(&self, id: &UpstreamId) -> bool {
        let was = self.closed(id).is_some();
        if was {
            self.context.closed_upstreams.change(|map| {
                map.remove(id);
            });
            self.rebuild();
        }
        was
    }

    /// The state of an upstream that was taken out; absent for any other.
    #[must_use]
    pub fn closed(&self, id: &UpstreamId) -> Option<ClosedUpstream> {
        self.context.closed_upstreams.find(id)
    }

    /// Starts a walk of all lists of an upstream now, or as soon as its pace allows. False if there
    /// is no such upstream.
    pub fn walk_now(&self, id: &UpstreamId) -> bool {
        let source = self.layout.load().by_id.get(id).cloned();
        source
            .inspect(|source| {
                source
                    .feeds()
                    .iter()
                    .for_each(|feed| feed.walk_now.notify_one())
            })
            .is_some()
    }

    /// The failure that callers of an upstream get that was taken out.
    pub(crate) fn closed_failure(&self, id: &UpstreamId) -> Option<Failure> {
        self.closed(id)
            .map(|_| Failure::new(FailureKind::Unavailable, UPSTREAM_DISABLED).with_upstream(id))
    }

    /// The same for a name that the upstream would have on an endpoint, were it let in.
    pub(crate) fn closed_failure_of_name(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        name: &str,
    ) -> Option<Failure> {
        let layout = self.layout.load();
        let closed = |source: &&Arc<super::catalog_source::CatalogSource>| {
            self.closed(source.id()).is_some()
        };
        let mut closed = layout
            .endpoint_lists
            .get(endpoint)?
            .sources
            .iter()
            .filter(closed);
        let has = |source: &&Arc<super::catalog_source::CatalogSource>| {
            let snapshot = source.base().snapshot();
            snapshot
                .list(kind)
                .items
                .iter()
                .any(|item| *item.native == *name)
        };
        closed
            .find(has)
            .and_then(|source| self.closed_failure(source.id()))
    }

    fn rebuild(&self) {
        let _one = self
            .apply_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.refresh(Instant::now());
        // The background task sends announcements that were held back.
        self.context.rebuild.notify_one();
    }
}
