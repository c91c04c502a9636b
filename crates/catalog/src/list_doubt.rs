//! Doubt about the lists of an upstream: it refused a call of an item that it listed, so that its
//! lists may have changed without a notification that weir heard.

use tokio::sync::Notify;

/// The doubt about the lists of one upstream.
#[derive(Debug, Default)]
pub struct ListDoubt(Notify);

impl ListDoubt {
    /// Has the lists read again, at most once each `poll`.
    pub fn raise(&self) {
        self.0.notify_waiters();
    }

    /// Waits for doubt. Cancel safe.
    pub(super) async fn raised(&self) {
        self.0.notified().await;
    }
}
