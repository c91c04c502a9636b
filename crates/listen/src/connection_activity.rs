//! The activity of a connection, for its timers: it either answers requests or waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Counts a connection's requests from the parsed head to the end of the answer's body.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    busy: AtomicUsize,
    served: AtomicUsize,
    /// The latest end of the answer in transmission, for HTTP/1.1.
    until: Mutex<Option<Instant>>,
}

/// A request in progress; it ends when dropped.
#[derive(Debug)]
pub struct RequestGuard(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// Counts a request with a complete head.
    #[must_use]
    pub fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.served.fetch_add(1, Ordering::AcqRel);
        RequestGuard(self.clone())
    }

    /// True while any request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Sets the latest end of the answer in transmission.
    pub(crate) fn set_answer_deadline(&self, until: Option<Instant>) {
        *self.until.lock() = until;
    }

    /// The latest end of the answer in transmission.
    pub(crate) fn answer_deadline(&self) -> Option<Instant> {
        *self.until.lock()
    }

    /// Requests begun so far.
    #[must_use]
    pub fn requests_begun(&self) -> usize {
        self.served.load(Ordering::Acquire)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}
