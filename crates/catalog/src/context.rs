//! The context that all parts of the catalog share, and the owner of all its tasks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::instant::millis;
use weir_schema::SchemaCache;

use crate::closed_upstreams::ClosedUpstreams;
use crate::settings::{CatalogPorts, CatalogSettings};
use crate::view_rebuild::ViewRebuild;

/// Shared by the catalog, its watchers and its background task.
#[derive(Debug)]
pub(super) struct CatalogContext {
    pub(super) settings: CatalogSettings,
    pub(super) ports: CatalogPorts,
    pub(super) contracts: SchemaCache,
    /// Upstreams that an operator took out.
    pub(super) closed_upstreams: ClosedUpstreams,
    /// Requested when a feed has a new snapshot.
    pub(super) rebuild: Arc<ViewRebuild>,
    /// The time until which clients' requests look for lists that are behind, in milliseconds of
    /// [`Self::millis`]. Zero if none ever was.
    pub(super) behind_until: AtomicU64,
    /// Owns every task; the shutdown awaits them.
    pub(super) tasks: TaskTracker,
    /// Ends every task.
    pub(super) stop: CancellationToken,
    /// True while the process ends, or hands its connections over.
    ending: watch::Sender<bool>,
    begun: Instant,
}

impl CatalogContext {
    pub(super) fn new(settings: CatalogSettings, ports: CatalogPorts) -> Self {
        Self {
            settings,
            ports,
            contracts: SchemaCache::default(),
            closed_upstreams: ClosedUpstreams::default(),
            rebuild: Arc::default(),
            behind_until: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            ending: watch::Sender::new(false),
            begun: Instant::now(),
        }
    }

    /// Lost upstreams are not followed any further.
    pub(super) fn begin_ending(&self) {
        self.ending.send_replace(true);
    }

    /// The process goes on.
    pub(super) fn abort_ending(&self) {
        self.ending.send_replace(false);
    }

    /// Waits while the process ends.
    pub(super) async fn wait_while_ending(&self) {
        // The sender lives as long as this.
        let mut ending = self.ending.subscribe();
        let _goes_on = ending.wait_for(|ending| !ending).await.is_ok();
    }

    pub(super) fn wall(&self) -> SystemTime {
        self.ports.clock.wall()
    }

    /// Milliseconds since the catalog began.
    pub(super) fn millis(&self) -> u64 {
        millis(self.begun.elapsed())
    }

    /// Whole seconds since the catalog began, for "used last".
    pub(super) fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }
}
