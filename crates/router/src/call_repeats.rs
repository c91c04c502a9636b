//! The repeats of a call whose server has its client wait: with growing delays, within the time of
//! one call.

use std::time::Duration;

use tokio::time::Instant;
use weir_core::port::doubled;

/// The delay before the first repeat, and the longest one.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The repeats since the last answer of the client.
#[derive(Debug, Default)]
pub struct CallRepeats {
    repeats: u32,
    /// The end of the time for all of them.
    until: Option<Instant>,
}

impl CallRepeats {
    /// The delay before the next repeat; `None` if the time is over. It is that of the first call
    /// since the last answer, with this deadline.
    #[must_use]
    pub fn next_delay(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        let now = Instant::now();
        let until = *self.until.get_or_insert(deadline.unwrap_or(now));
        let delay = doubled(FIRST_DELAY, self.repeats, MAX_DELAY);
        self.repeats += 1;
        (now + delay < until).then_some(delay)
    }

    /// Begins anew: the client has answered.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_grow_and_end_with_the_time_of_the_first_call() {
        let mut repeats = CallRepeats::default();
        let begun = Instant::now();
        let mut count = 0;
        // Each repeat has a later deadline of its own.
        while let Some(delay) = repeats.next_delay(Some(Instant::now() + Duration::from_secs(60))) {
            assert!((FIRST_DELAY..=MAX_DELAY).contains(&delay));
            tokio::time::advance(delay).await;
            count += 1;
        }
        assert!(begun.elapsed() <= Duration::from_secs(60));
        assert!((10..40).contains(&count), "{count}");
        repeats.reset();
        let next = repeats.next_delay(Some(Instant::now() + Duration::from_secs(60)));
        assert_eq!(next, Some(FIRST_DELAY));
        repeats.reset();
        assert_eq!(
            repeats.next_delay(None),
            None,
            "without a time there is none"
        );
    }
}
