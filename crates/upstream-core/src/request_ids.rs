//! The ids of weir's requests to one upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most request ids that a process may use at one upstream after its successor took over.
const MAX_LATE_IDS: u64 = 1 << 20;

/// The request ids of one upstream. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestIds(Arc<AtomicU64>);

impl RequestIds {
    /// Returns a new request id: unique in every session of this server and among all requests in
    /// flight.
    pub fn next_id(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the last request id that this process may use. Its successor begins beyond it.
    pub fn last_id(&self) -> u64 {
        self.0.load(Ordering::Relaxed) + MAX_LATE_IDS
    }

    /// Continues after the request ids of the previous process.
    pub fn continue_after(&self, last: u64) {
        self.0.fetch_max(last, Ordering::Relaxed);
    }
}
