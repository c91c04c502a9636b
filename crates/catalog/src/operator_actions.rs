//! The operators' actions on upstreams: taking one out, letting it in again, and reading its lists
//! now.

use tokio::time::Instant;
use weir_core::failure::{Failure, FailureKind, UPSTREAM_DISABLED};
use weir_core::names::UpstreamId;

use crate::Catalog;
use crate::closed_upstreams::{ClosedUpstream, ClosingMode};
use crate::retiring_upstreams::RETIRE_GRACE;

impl Catalog {
    /// Takes an upstream out, until [`Self::reopen`], over reloads too. Clients are notified if
    /// their list changed. Running calls are left alone; the child processes of a disabled upstream
    /// end with them, so that it comes back with new ones. False if there is no such upstream.
    pub fn close(&self, id: &UpstreamId, how: ClosingMode) -> bool {
        let source = self.layout.load().by_id.get(id).cloned();
        let known = source.is_some();
        if let Some(source) = source {
            let since = self.context.wall();
            let before = self.closed(id).map(|closed| closed.mode);
            if how == ClosingMode::Disabled && before != Some(ClosingMode::Disabled) {
                let replacing = source.upstream().clone().replace_processes(RETIRE_GRACE);
                self.context.tasks.spawn(replacing);
            }
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
    #[must_use]
    pub fn closed_failure(&self, id: &UpstreamId) -> Option<Failure> {
        self.closed(id)
            .map(|_| Failure::new(FailureKind::Unavailable, UPSTREAM_DISABLED).with_upstream(id))
    }

    fn rebuild(&self) {
        let _one = self.apply_lock.lock();
        self.refresh(Instant::now());
        // The background task sends announcements that were held back.
        self.context.rebuild.request();
    }
}
