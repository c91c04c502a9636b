//! The request to build views again, and the progress of the task that does.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// Requests of feeds, and the rounds of the task that builds views.
#[derive(Debug)]
pub(super) struct ViewRebuild {
    requested: AtomicU64,
    built: watch::Sender<u64>,
    wanted: Notify,
}

impl Default for ViewRebuild {
    fn default() -> Self {
        Self {
            requested: AtomicU64::new(0),
            built: watch::Sender::new(0),
            wanted: Notify::new(),
        }
    }
}

impl ViewRebuild {
    /// Requests that views are built from what is published now.
    pub(super) fn request(&self) {
        self.requested.fetch_add(1, Ordering::AcqRel);
        self.wanted.notify_one();
    }

    /// Waits for a request.
    pub(super) async fn requested(&self) {
        self.wanted.notified().await;
    }

    /// The requests so far. Views that are built afterwards have what these are about.
    pub(super) fn begin(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }

    /// Views were built for the requests before [`Self::begin`].
    pub(super) fn end(&self, begun: u64) {
        self.built.send_if_modified(|built| {
            let is_later = begun > *built;
            *built = begun.max(*built);
            is_later
        });
    }

    /// Waits until views are built for all requests so far. Cancel safe.
    pub(super) async fn wait_for_views(&self) {
        let wanted = self.begin();
        let mut built = self.built.subscribe();
        // The sender lives as long as `self`.
        let _ = built.wait_for(|built| *built >= wanted).await;
    }
}
