//! The time and the randomness of one upstream's parts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::instant::millis;
use weir_core::port::{Clock, Random};

/// The time, and the randomness for jitter. Clones share both.
#[derive(Clone, Debug)]
pub struct UpstreamClock {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl UpstreamClock {
    /// Makes a clock of the two ports.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random }
    }

    /// Returns the monotonic time.
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Returns the monotonic time in whole milliseconds.
    pub fn millis(&self) -> u64 {
        millis(self.now())
    }

    /// Returns the wall time.
    pub fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Returns the randomness.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }
}
