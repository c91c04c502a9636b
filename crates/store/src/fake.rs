//! A clock that moves by hand and randomness that counts, for this crate's tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use weir_core::port::{Clock, Random};

#[derive(Debug, Default)]
pub(crate) struct FakeClock(AtomicU64);

impl FakeClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.monotonic()
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeRandom(AtomicU64);

impl Random for FakeRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for byte in buffer {
            *byte = self.0.fetch_add(1, Ordering::SeqCst) as u8;
        }
    }
}
