//! The memory pressure of the process, as the gateway sets it, and its effect on requests (F10):
//! first connections end with their request and cached pages go, then no new request begins. Open
//! requests go on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::stack::Shared;

/// The memory pressure of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
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
pub struct Pressure(pub(crate) Arc<Shared>);

impl Pressure {
    /// Sets the memory pressure from now on.
    pub fn set(&self, shortage: Shortage) {
        self.0.shortage.0.store(shortage as u8, Ordering::Relaxed);
        if shortage > Shortage::None {
            self.0.pages.clear();
        }
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pressure({:?})", self.0.shortage.now())
    }
}

/// The last reported memory pressure.
#[derive(Debug, Default)]
pub(crate) struct Said(AtomicU8);

impl Said {
    pub(crate) fn now(&self) -> Shortage {
        match self.0.load(Ordering::Relaxed) {
            0 => Shortage::None,
            1 => Shortage::Near,
            _ => Shortage::Acute,
        }
    }
}
