//! The sign that the lists of an upstream may be out of date: it refused a call of an item that it
//! listed, so that they may have changed without a notification that weir received.

use tokio::sync::Notify;

/// The signal of one upstream.
#[derive(Debug, Default)]
pub struct StaleListSignal(Notify);

impl StaleListSignal {
    /// Has the lists read again, at most once each `poll`.
    pub fn send(&self) {
        self.0.notify_waiters();
    }

    /// Waits for the signal. Cancel safe.
    pub(super) async fn received(&self) {
        self.0.notified().await;
    }
}
