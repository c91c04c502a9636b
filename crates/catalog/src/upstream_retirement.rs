//! The retirement of upstreams that a reload replaced or removed: the catalog knows them until their
//! calls and tasks have ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::principal::Principal;
use weir_core::upstream::Upstream;

use crate::Catalog;
use crate::catalog_source::CatalogSource;
use crate::retiring_upstreams::{RETIRE_GRACE, RetiringUpstream};

impl Catalog {
    /// Retires an upstream that a reload took away. It serves its running calls, and the tasks that
    /// began at it: until they end if another upstream of its id replaces it, else for the grace of
    /// calls.
    pub(crate) fn run_out(
        &self,
        source: &Arc<CatalogSource>,
        endpoints: Vec<EndpointId>,
        is_replaced: bool,
    ) {
        source.stop();
        let stop = self.context.stop.child_token();
        self.retiring.add(RetiringUpstream {
            source: source.clone(),
            endpoints,
            stop: stop.clone(),
        });
        let longest = if is_replaced {
            Duration::MAX
        } else {
            RETIRE_GRACE
        };
        let (retiring, source) = (self.retiring.clone(), source.clone());
        self.context.tasks.spawn(async move {
            let begun = Instant::now();
            let upstream = source.upstream();
            let running_out = timeout(longest, upstream.clone().run_out(RETIRE_GRACE));
            let _stopped = stop.run_until_cancelled(running_out).await;
            retiring.remove(&source);
            let left = RETIRE_GRACE.saturating_sub(begun.elapsed());
            upstream.clone().retire(left).await;
        });
    }

    /// The upstream that a task is asked about at: the one at which it runs, also if it is retired;
    /// else the present one. The number is that of the upstream at which the task began, in this
    /// process or one before.
    #[must_use]
    pub fn upstream_of_task(
        &self,
        id: &UpstreamId,
        incarnation: u32,
        principal: &Principal,
        native: &str,
    ) -> Option<Arc<dyn Upstream>> {
        let layout = self.layout.load();
        let present = layout.by_id.get(id);
        if let Some(present) = present.filter(|present| present.incarnation == incarnation) {
            return Some(present.upstream().clone());
        }
        // A server that keeps its tasks outside of sessions may have moved to another URL.
        let may_have_moved = |holder: &Arc<dyn Upstream>| {
            let health = holder.health();
            present.is_some() && health.down && health.sessions == 0
        };
        let holder = self
            .retiring
            .holder_of_task(id, incarnation, principal, native);
        let holder = holder.filter(|holder| !may_have_moved(holder));
        holder.or_else(|| present.map(|present| present.upstream().clone()))
    }

    /// The upstreams that may have sessions of clients: those of the newest reload, and those that
    /// still end.
    #[must_use]
    pub fn upstreams_with_sessions(&self) -> Vec<Arc<dyn Upstream>> {
        let mut all = self.upstreams();
        all.extend(self.retiring.upstreams());
        all
    }
}
