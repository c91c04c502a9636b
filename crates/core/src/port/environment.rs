//! The time and the randomness of the process.

use std::time::{Duration, SystemTime};

/// The time. Sleeps are tokio's, whose clock tests can pause.
pub trait Clock: Send + Sync {
    /// Time since a fixed point; never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall-clock time, for values that leave the process.
    fn wall(&self) -> SystemTime;
}

/// Unguessable bytes.
pub trait Random: Send + Sync {
    /// Fills `buffer`.
    fn fill(&self, buffer: &mut [u8]);
}

/// A random number from 0 to 1, both included, as jitter needs it.
pub fn random_share(random: &dyn Random) -> f64 {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// 16 random bytes: ids.
pub fn random_id(random: &dyn Random) -> [u8; 16] {
    let mut id = [0; 16];
    random.fill(&mut id);
    id
}
