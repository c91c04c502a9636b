//! The waits between attempts that fail.

use std::time::Duration;

use crate::port::environment::{Random, full_jitter};

/// `first`, doubled with each of the failures, up to `most`.
pub fn doubled(first: Duration, failures: u32, most: Duration) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(most)
}

/// The waits of one kind of attempt: full jitter below a doubling ceiling.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits up to `first` after one failure, and up to `most` after many.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            failures: 0,
        }
    }

    /// The wait after one more failure.
    pub fn next(&mut self, random: &dyn Random) -> Duration {
        let ceiling = doubled(self.first, self.failures, self.most);
        self.failures = self.failures.saturating_add(1);
        full_jitter(ceiling, random)
    }

    /// Begins anew after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::environment::RepeatedByte;

    // Proves E11.
    #[test]
    fn waits_are_jittered_doubling_and_bounded() {
        let mut high = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let waits: Vec<u128> = (0..20)
            .map(|_| high.next(&RepeatedByte(255)).as_millis())
            .collect();
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[19], 30_000);
        let mut low = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        assert_eq!(low.next(&RepeatedByte(0)), Duration::ZERO);
        high.reset();
        assert_eq!(high.next(&RepeatedByte(255)).as_millis(), 100);
    }
}
