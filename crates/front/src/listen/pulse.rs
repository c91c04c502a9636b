//! Whether a connection is answering requests or waiting for one: what its timers go by.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts a connection's requests from the parsed head to the end of the answer's body.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    busy: AtomicUsize,
    served: AtomicUsize,
}

/// One request being answered; over when dropped.
#[derive(Debug)]
pub(crate) struct Beat(Arc<Pulse>);

impl Pulse {
    /// A request's head is in.
    pub(crate) fn begin(self: &Arc<Self>) -> Beat {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.served.fetch_add(1, Ordering::AcqRel);
        Beat(self.clone())
    }

    /// True while any request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
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
