//! The time and the randomness of the process.

use std::time::{Duration, SystemTime};

#[cfg(test)]
pub(crate) use tests::RepeatedByte;

/// The time. Sleeps are tokio's, whose clock tests can pause.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Time since a fixed point; never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall-clock time, for values that leave the process.
    fn wall(&self) -> SystemTime;
}

/// Unguessable bytes.
pub trait Random: std::fmt::Debug + Send + Sync {
    /// Fills `buffer`.
    fn fill(&self, buffer: &mut [u8]);
}

/// A random number from 0 to 1, both included, as jitter needs it.
pub fn random_share(random: &dyn Random) -> f64 {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// A random time from zero to `ceiling`.
pub fn full_jitter(ceiling: Duration, random: &dyn Random) -> Duration {
    ceiling.mul_f64(random_share(random))
}

/// A random time from half of `ceiling` to all of it.
pub fn half_jitter(ceiling: Duration, random: &dyn Random) -> Duration {
    ceiling / 2 + full_jitter(ceiling / 2, random)
}

/// A time give or take a fifth, so that what begins together does not go on in step.
pub fn jittered(time: Duration, random: &dyn Random) -> Duration {
    jittered_by(time, 0.2, random)
}

/// A time give or take this part of it.
pub fn jittered_by(time: Duration, part: f64, random: &dyn Random) -> Duration {
    time.mul_f64(1.0 - part + 2.0 * part * random_share(random))
}

/// 16 random bytes: ids.
pub fn random_id(random: &dyn Random) -> [u8; 16] {
    let mut id = [0; 16];
    random.fill(&mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bytes that are all the same.
    #[derive(Debug)]
    pub(crate) struct RepeatedByte(pub(crate) u8);

    impl Random for RepeatedByte {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }

    // Proves R163.
    #[test]
    fn polling_is_jittered() {
        let base = Duration::from_secs(60);
        assert_eq!(jittered(base, &RepeatedByte(0)), Duration::from_secs(48));
        assert_eq!(jittered(base, &RepeatedByte(255)), Duration::from_secs(72));
    }

    // Proves D22.
    #[test]
    fn keep_alives_are_a_fifth_apart_either_way() {
        let time = Duration::from_secs(15);
        let bounds = [0, 255].map(|byte| jittered(time, &RepeatedByte(byte)));
        assert_eq!(bounds, [Duration::from_secs(12), Duration::from_secs(18)]);
        assert!((0..=u8::MAX).is_sorted_by_key(|byte| jittered(time, &RepeatedByte(byte))));
    }
}
