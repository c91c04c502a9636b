//! The pauses after failures of the shared store, random so that many replicas do not act at the
//! same moment.

use std::time::Duration;

use weir_core::port::{Backoff, Random};

/// The shortest pause, so that a row of low draws is no busy loop.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The pauses after failed writes and lost subscriptions.
pub(crate) const STORE_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

/// Returns the pause after one more failure.
pub(crate) fn next_pause(backoff: &mut Backoff, random: &dyn Random) -> Duration {
    backoff.next(random).max(MIN_PAUSE)
}

#[cfg(test)]
mod tests {
    use weir_testkit::FakeRandom;

    use super::*;

    #[test]
    fn pauses_are_never_shorter_than_the_least() {
        let (first, most) = (Duration::from_millis(50), Duration::from_secs(2));
        let (mut backoff, random) = (Backoff::new(first, most), FakeRandom::new(1));
        assert!(next_pause(&mut backoff, &random) <= first);
        let pauses: Vec<_> = (0..100)
            .map(|_| next_pause(&mut backoff, &random))
            .collect();
        let is_bounded = |pause: &Duration| (MIN_PAUSE..=most).contains(pause);
        assert!(pauses.iter().all(is_bounded));
        let none = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(next_pause(&mut { none }, &random), MIN_PAUSE);
    }
}
