//! The upstreams that a reload replaced or removed, while their calls and tasks end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::principal::Principal;
use weir_core::upstream::Upstream;

use super::Catalog;
use super::catalog_source::CatalogSource;

/// The most upstreams of one id that wait for their tasks: many reloads may follow each other. The
/// oldest ends first.
const MAX_RETIRING_OF_AN_ID: usize = 8;

/// The upstreams that run out.
#[derive(Default)]
pub(crate) struct RetiringUpstreams {
    all: Mutex<Vec<RetiringUpstream>>,
}

/// An upstream that was replaced or removed.
struct RetiringUpstream {
    source: Arc<CatalogSource>,
    /// The endpoints that had the upstream when it was taken away.
    endpoints: Vec<EndpointId>,
    /// Ends the wait for the tasks.
    stop: CancellationToken,
}

impl RetiringUpstreams {
    fn lock(&self) -> MutexGuard<'_, Vec<RetiringUpstream>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, retiring: RetiringUpstream) {
        let mut all = self.lock();
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

    fn remove(&self, source: &Arc<CatalogSource>) {
        self.lock()
            .retain(|other| !Arc::ptr_eq(&other.source, source));
    }

    /// All of them.
    fn upstreams(&self) -> Vec<Arc<dyn Upstream>> {
        let all = self.lock();
        let upstreams = all.iter().map(|one| one.source.upstream().clone());
        upstreams.collect()
    }

    /// The upstream with this number, if a task runs in a session or child process of it.
    fn holder_of_task(
        &self,
        incarnation: u32,
        principal: &Principal,
        native: &str,
    ) -> Option<Arc<dyn Upstream>> {
        let all = self.lock();
        let one = all
            .iter()
            .find(|one| one.source.incarnation == incarnation)?;
        let upstream = one.source.upstream();
        let holds = upstream.holds_task(principal, native);
        holds.then(|| upstream.clone())
    }

    /// The newest upstream of an id that was an endpoint's.
    pub(crate) fn source_of(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> Option<Arc<CatalogSource>> {
        let all = self.lock();
        let mut newest_first = all.iter().rev();
        newest_first
            .find(|one| one.source.id() == upstream && one.endpoints.contains(endpoint))
            .map(|one| one.source.clone())
    }
}

impl Catalog {
    /// Retires an upstream that a reload took away. It serves its running calls, and the tasks that
    /// began in its sessions and child processes: until they end if another upstream of its id
    /// replaces it, else for the grace of calls.
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
        let grace = self.context.settings.retire_grace;
        let longest = if is_replaced { Duration::MAX } else { grace };
        let (retiring, source) = (self.retiring.clone(), source.clone());
        self.context.tasks.spawn(async move {
            let begun = Instant::now();
            let upstream = source.upstream();
            let running_out = timeout(longest, upstream.clone().run_out(grace));
            let _stopped = stop.run_until_cancelled(running_out).await;
            retiring.remove(&source);
            let left = grace.saturating_sub(begun.elapsed());
            upstream.clone().retire(left).await;
        });
    }

    /// The upstream that a task is asked about at: the one of this number in whose session or child
    /// process it runs, also if it is retired; else the present one.
    #[must_use]
    pub fn upstream_of_task(
        &self,
        id: &UpstreamId,
        incarnation: u32,
        principal: &Principal,
        native: &str,
    ) -> Option<Arc<dyn Upstream>> {
        let holder = self.retiring.holder_of_task(incarnation, principal, native);
        holder.or_else(|| self.upstream(id))
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
