//! The upstreams that a reload replaced or removed, while their calls and tasks end.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::principal::Principal;
use weir_core::upstream::Upstream;

use crate::catalog_source::CatalogSource;

/// The time that calls in flight may run on when a reload or the shutdown takes their upstream
/// away.
pub(crate) const RETIRE_GRACE: Duration = Duration::from_secs(30);
/// The most upstreams of one id that wait for their tasks: many reloads may follow each other. The
/// oldest ends first.
const MAX_RETIRING_OF_AN_ID: usize = 8;

/// The upstreams that run out.
#[derive(Default)]
pub(crate) struct RetiringUpstreams {
    all: Mutex<Vec<RetiringUpstream>>,
}

/// An upstream that was replaced or removed.
pub(crate) struct RetiringUpstream {
    pub(crate) source: Arc<CatalogSource>,
    /// The endpoints that had the upstream when it was taken away.
    pub(crate) endpoints: Vec<EndpointId>,
    /// Ends the wait for the tasks.
    pub(crate) stop: CancellationToken,
}

impl RetiringUpstreams {
    pub(crate) fn add(&self, retiring: RetiringUpstream) {
        let mut all = self.all.lock();
        let id = retiring.source.id();
        let mut of_id = all.iter().filter(|other| other.source.id() == id);
        if let Some(oldest) = of_id.next()
            && of_id.count() + 1 >= MAX_RETIRING_OF_AN_ID
        {
            oldest.stop.cancel();
            let oldest = oldest.source.clone();
            all.retain(|other| !Arc::ptr_eq(&other.source, &oldest));
        }
        all.push(retiring);
    }

    pub(crate) fn remove(&self, source: &Arc<CatalogSource>) {
        self.all
            .lock()
            .retain(|other| !Arc::ptr_eq(&other.source, source));
    }

    /// All of them.
    pub(crate) fn upstreams(&self) -> Vec<Arc<dyn Upstream>> {
        let all = self.all.lock();
        let upstreams = all.iter().map(|one| one.source.upstream().clone());
        upstreams.collect()
    }

    /// The upstream with this number, if a task runs at it. A number that this process did not give
    /// is of the process before, whose sessions and child processes the first upstream of the id has.
    pub(crate) fn holder_of_task(
        &self,
        id: &UpstreamId,
        incarnation: u32,
        principal: &Principal,
        native: &str,
    ) -> Option<Arc<dyn Upstream>> {
        let all = self.all.lock();
        let of_number = all.iter().find(|one| one.source.incarnation == incarnation);
        let first = || {
            all.iter()
                .find(|one| one.source.is_first && one.source.id() == id)
        };
        let upstream = of_number.or_else(first)?.source.upstream();
        let holds = upstream.holds_task(principal, native);
        holds.then(|| upstream.clone())
    }

    /// The newest upstream of an id that was an endpoint's.
    pub(crate) fn source_of(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> Option<Arc<CatalogSource>> {
        let all = self.all.lock();
        let mut newest_first = all.iter().rev();
        newest_first
            .find(|one| one.source.id() == upstream && one.endpoints.contains(endpoint))
            .map(|one| one.source.clone())
    }
}
