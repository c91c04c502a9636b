//! The state of the layers that observe requests and shed load. They stand around the router.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;
use weir_core::call::RequestName;

use crate::in_flight::InFlightLimit;
use crate::memory_pressure::{CurrentPressure, MemoryPressure};

/// The state of the layers that observe requests and shed load. It survives a reload.
#[derive(Debug)]
pub struct OuterState {
    /// The name of the next request.
    next_request_name: AtomicU64,
    /// Requests without the beginning of an answer.
    pub(crate) in_flight: InFlightLimit,
    /// The current memory pressure.
    pub(crate) memory_pressure: Arc<CurrentPressure>,
    /// Cancelled when draining begins.
    drain: CancellationToken,
}

impl OuterState {
    /// The state without a request yet. The names of requests begin at `first_name`.
    pub(crate) fn new(first_name: u64, drain: CancellationToken) -> Self {
        Self {
            next_request_name: AtomicU64::new(first_name),
            in_flight: InFlightLimit::default(),
            memory_pressure: Arc::default(),
            drain,
        }
    }

    /// The name of a new request: of a client, or of weir to a client.
    pub fn request_name(&self) -> RequestName {
        // A name tells requests apart and grants no access. So an unguessable start and fixed steps
        // are enough, without a system call. The odd step visits every number once.
        RequestName::from_bits(
            self.next_request_name
                .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed),
        )
    }

    /// True if connections end with their next answer: memory is short or will be soon, or draining
    /// has begun.
    pub(crate) fn closes_connections(&self) -> bool {
        self.memory_pressure.get() > MemoryPressure::None || self.drain.is_cancelled()
    }
}
