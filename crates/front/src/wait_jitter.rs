//! Waits of a random length, so that streams that were opened together do not wake together.

use tokio::time::Duration;
use weir_core::port::Random;

/// A byte for [`with_jitter`].
pub(crate) fn random_byte(random: &dyn Random) -> u8 {
    let mut byte = [0];
    random.fill(&mut byte);
    byte[0]
}

/// The time plus or minus a fifth, by a random byte.
pub(crate) fn with_jitter(time: Duration, luck: u8) -> Duration {
    time.mul_f64(0.8 + 0.4 * f64::from(luck) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves D22.
    #[test]
    fn keep_alives_are_a_fifth_apart_either_way() {
        let time = Duration::from_secs(15);
        assert_eq!(
            (with_jitter(time, 0), with_jitter(time, 255)),
            (Duration::from_secs(12), Duration::from_secs(18))
        );
        assert!((0..=u8::MAX).is_sorted_by_key(|luck| with_jitter(time, luck)));
    }
}
