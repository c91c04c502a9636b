//! The bound of the calls in flight at one upstream.
//!
//! Calls do not queue here: fairness between callers is decided before. A reply that still runs
//! keeps its permit until it ends or is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use weir_core::{Failure, FailureKind};
use weir_upstream_core::upstream_label::UpstreamLabel;

/// The longest wait for the permit of a call that has just ended.
const PERMIT_RETURN_WAIT: Duration = Duration::from_millis(100);
/// The time between two looks at the calls in flight.
const IDLE_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The permits of the calls in flight. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamInFlightLimit {
    label: UpstreamLabel,
    most: usize,
    permits: Arc<Semaphore>,
}

impl UpstreamInFlightLimit {
    /// Makes the permits that the upstream's bounds allow.
    pub(crate) fn new(label: UpstreamLabel, most: usize) -> Self {
        let permits = Arc::new(Semaphore::new(most));
        Self {
            label,
            most,
            permits,
        }
    }

    /// Takes the permit of a call. A call that follows directly on the end of another waits
    /// shortly, at most until `deadline`, for that one's permit.
    ///
    /// # Errors
    ///
    /// `Busy`: all permits are taken.
    pub(crate) async fn acquire(self, deadline: Instant) -> Result<OwnedSemaphorePermit, Failure> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        let until = deadline.min(Instant::now() + PERMIT_RETURN_WAIT);
        let freed = tokio::time::timeout_at(until, self.permits.acquire_owned()).await;
        freed.ok().and_then(Result::ok).ok_or_else(|| {
            let text = "The upstream has as many calls in flight as it may: try again shortly";
            self.label.fail(FailureKind::Busy, text)
        })
    }

    /// Takes a permit if one is free.
    pub(crate) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Returns the number of calls in flight.
    pub(crate) fn count(&self) -> usize {
        self.most.saturating_sub(self.permits.available_permits())
    }

    /// Waits until no call is in flight, at most `grace`. Further calls get permits meanwhile.
    pub(crate) async fn wait_until_idle(&self, grace: Duration) {
        let idle = async {
            while self.count() > 0 {
                tokio::time::sleep(IDLE_LOOK_INTERVAL).await;
            }
        };
        let _still_running = tokio::time::timeout(grace, idle).await;
    }

    /// Waits for the end of all calls in flight, at most `grace`. Further calls get no permit
    /// meanwhile.
    pub(crate) async fn wait_for_end(&self, grace: Duration) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let _still_running = tokio::time::timeout(grace, self.permits.acquire_many(all)).await;
    }
}
