//! The arrival of the sessions and child processes that a predecessor hands over.

use tokio::sync::watch;

/// A flag that is set once all sessions and child processes have arrived. Clones share it.
#[derive(Clone, Debug)]
pub struct HandoverArrival(watch::Sender<bool>);

impl HandoverArrival {
    /// The flag of a successor, not set yet.
    #[must_use]
    pub fn awaited() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Sets the flag: all have arrived, or the predecessor is gone and no import runs any more.
    pub fn complete(&self) {
        self.0.send_replace(true);
    }

    /// True once the flag is set.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the flag is set. Cancel safe.
    pub async fn wait(&self) {
        if !self.is_complete() {
            // The sender lives as long as this.
            let _arrived = self
                .0
                .subscribe()
                .wait_for(|arrived| *arrived)
                .await
                .is_ok();
        }
    }
}

impl Default for HandoverArrival {
    /// The flag of a process without a predecessor, set from the beginning.
    fn default() -> Self {
        Self(watch::Sender::new(true))
    }
}
