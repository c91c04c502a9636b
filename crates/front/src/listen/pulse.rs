//! The activity of a connection, for its timers: it either answers requests or waits for one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// Counts a connection's requests from the parsed head to the end of the answer's body.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    busy: AtomicUsize,
    served: AtomicUsize,
    /// The latest end of the answer in transmission, for HTTP/1.1.
    until: Mutex<Option<Instant>>,
}

/// A request in progress; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Beat(Arc<Pulse>);

impl Pulse {
    /// Counts a request with a complete head.
    pub(crate) fn begin(self: &Arc<Self>) -> Beat {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.served.fetch_add(1, Ordering::AcqRel);
        Beat(self.clone())
    }

    /// True while any request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Sets the latest end of the answer in transmission.
    pub(crate) fn set_until(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// The latest end of the answer in transmission.
    pub(crate) fn until(&self) -> Option<Instant> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests begun so far.
    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Acquire)
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}
