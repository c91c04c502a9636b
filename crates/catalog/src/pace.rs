//! The pace of asking an upstream again: the rate of following its changes, and the backoff for a
//! lost one.

use std::time::Duration;

use tokio::time::Instant;
use weir_core::port::{Random, random_share};

use super::settings::RefreshPace;

/// Keeps the walks over one upstream's list apart. A storm of changes leads to few walks, and the
/// last change to one more; an upstream that never stops changing is walked ever more slowly.
#[derive(Debug)]
pub(super) struct RefreshPacer {
    rules: RefreshPace,
    last: Option<Instant>,
    walks_in_row: u32,
}

impl RefreshPacer {
    pub(super) fn new(rules: RefreshPace) -> Self {
        Self {
            rules,
            last: None,
            walks_in_row: 0,
        }
    }

    /// The earliest time for the next walk.
    pub(super) fn gate(&self, now: Instant) -> Instant {
        self.last
            .map_or(now, |last| now.max(last + self.interval()))
    }

    /// A walk begins now.
    pub(super) fn begin(&mut self, now: Instant) {
        let calm = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= self.rules.calm);
        self.walks_in_row = if calm {
            0
        } else {
            self.walks_in_row.saturating_add(1)
        };
        self.last = Some(now);
    }

    fn interval(&self) -> Duration {
        let doublings = self
            .walks_in_row
            .saturating_sub(self.rules.walks_before_slowing)
            .min(16);
        (self.rules.min_interval * (1 << doublings)).min(self.rules.max_interval)
    }
}

/// Waits between attempts that fail: full jitter below a doubling bound.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            failures: 0,
        }
    }

    /// The next wait.
    pub(super) fn next(&mut self, random: &dyn Random) -> Duration {
        let bound = (self.first * (1 << self.failures.min(16))).min(self.most);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(random_share(random))
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedRandom(u8);
    impl Random for FixedRandom {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }

    // Proves D11.
    #[test]
    fn at_most_two_walks_a_second_and_ever_fewer_when_it_never_stops() {
        let mut pace = RefreshPacer::new(RefreshPace::default());
        let start = Instant::now();
        let (mut now, mut starts) = (start, Vec::new());
        while now < start + Duration::from_secs(60) {
            now = pace.gate(now);
            pace.begin(now);
            starts.push(now - start);
        }
        assert!(
            starts
                .windows(2)
                .all(|two| two[1] - two[0] >= Duration::from_millis(500))
        );
        let early = starts
            .iter()
            .filter(|at| **at < Duration::from_secs(10))
            .count();
        let late = starts
            .iter()
            .filter(|at| **at >= Duration::from_secs(40))
            .count();
        assert!(early >= 20 && late <= 6, "{early} {late}");
        // After a pause the first change is followed at once again.
        let later = now + Duration::from_secs(10);
        assert_eq!(pace.gate(later), later);
        pace.begin(later);
        assert_eq!(pace.gate(later), later + Duration::from_millis(500));
    }

    // Proves E11.
    #[test]
    fn waits_are_jittered_doubling_and_bounded() {
        let mut high = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let waits: Vec<u128> = (0..20)
            .map(|_| high.next(&FixedRandom(255)).as_millis())
            .collect();
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[19], 30_000);
        let mut low = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        assert_eq!(low.next(&FixedRandom(0)), Duration::ZERO);
        high.reset();
        assert_eq!(high.next(&FixedRandom(255)).as_millis(), 100);
    }
}
