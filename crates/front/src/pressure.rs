//! How short the process is of memory, as whoever runs it says, and what becomes of requests then
//! (fault F10): first connections end with their request and kept pages go, then nothing new is
//! begun. What is open goes on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::stack::Shared;

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
    /// There is enough.
    #[default]
    None,
    /// It will be short soon: nothing is kept that is not needed.
    Near,
    /// It is short: what is new is refused with 503, but for the ends of sessions.
    Acute,
}

/// The way to say how short memory is.
#[derive(Clone)]
pub struct Pressure(pub(crate) Arc<Shared>);

impl Pressure {
    /// It is so from now on.
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

/// What was said last.
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
