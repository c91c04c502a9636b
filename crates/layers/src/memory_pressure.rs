//! The memory pressure of the process, as the gateway sets it, and its effect on requests (F10):
//! first connections end with their request and cached pages go, then no new request begins. Open
//! requests go on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::page_cache::PageCache;

/// The memory pressure of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Memory is sufficient.
    #[default]
    None,
    /// Memory will be short soon: caches are emptied.
    Near,
    /// Memory is short: new requests are refused with 503, except those that end sessions.
    Acute,
}

/// The handle that sets the memory pressure.
#[derive(Clone)]
pub struct PressureHandle {
    pub(crate) pressure: Arc<CurrentPressure>,
    pub(crate) pages: Arc<PageCache>,
}

impl PressureHandle {
    /// Sets the memory pressure from now on.
    pub fn set(&self, shortage: MemoryPressure) {
        self.pressure.0.store(shortage as u8, Ordering::Relaxed);
        if shortage > MemoryPressure::None {
            self.pages.clear();
        }
    }
}

impl fmt::Debug for PressureHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PressureHandle({:?})", self.pressure.get())
    }
}

/// The last reported memory pressure.
#[derive(Debug, Default)]
pub(crate) struct CurrentPressure(AtomicU8);

impl CurrentPressure {
    pub(crate) fn get(&self) -> MemoryPressure {
        match self.0.load(Ordering::Relaxed) {
            0 => MemoryPressure::None,
            1 => MemoryPressure::Near,
            _ => MemoryPressure::Acute,
        }
    }
}
