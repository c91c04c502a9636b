//! The machine behind the ports of core: its clock and its randomness.

use std::time::{Duration, Instant, SystemTime};

use weir_core::port::{Clock, Random};

/// The machine's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock {
    began: Instant,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// If the operating system has no randomness: every id and key would be guessable, so nothing may go on.
    fn fill(&self, buffer: &mut [u8]) {
        if let Err(error) = getrandom::fill(buffer) {
            panic!("the operating system gives no random bytes: {error}");
        }
    }
}
