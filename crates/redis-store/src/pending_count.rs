//! The number of writes that wait for the shared store, and the wait until it is zero.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// A number of writes that changes while others wait for its zero. Clones are the same number.
#[derive(Clone, Debug)]
pub(crate) struct PendingCount(watch::Sender<usize>);

impl PendingCount {
    /// No writes.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// The number.
    pub(crate) fn get(&self) -> usize {
        *self.0.borrow()
    }

    /// Counts again. Counts are taken one after another, so that the last one is the newest; `count`
    /// may lock what the caller has not locked.
    pub(crate) fn update(&self, count: impl FnOnce() -> usize) {
        self.0.send_modify(|pending| *pending = count());
    }

    /// Waits until the number is zero; returns the number at the time limit. Cancel safe.
    pub(crate) async fn wait_for_zero(&self, limit: Duration) -> usize {
        let mut pending = self.0.subscribe();
        let until = Instant::now() + limit;
        let _ = timeout_at(until, pending.wait_for(|left| *left == 0)).await;
        self.get()
    }
}
