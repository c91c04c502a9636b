//! The pace of following the changes of an upstream.

use std::time::Duration;

use tokio::time::Instant;
use weir_core::port::doubled;

/// The pace of walking an upstream that reports changes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshPace {
    /// Least time between the starts of two walks.
    pub min_interval: Duration,
    /// So many walks in a row without a pause of `calm` count as flapping: from there on the time
    /// doubles.
    pub walks_before_slowing: u32,
    /// The pause that ends a row.
    pub calm: Duration,
    /// The most that the time grows to. The last change is seen after this time at the latest.
    pub max_interval: Duration,
}

impl Default for RefreshPace {
    /// Two walks a second at most; ten seconds of that are a storm.
    fn default() -> Self {
        Self {
            min_interval: Duration::from_millis(500),
            walks_before_slowing: 20,
            calm: Duration::from_secs(5),
            max_interval: Duration::from_secs(4),
        }
    }
}

/// Keeps the walks over one upstream's list apart. A storm of changes leads to few walks, and the
/// last change to one more; an upstream that never stops changing is walked ever more slowly.
#[derive(Debug)]
pub struct RefreshPacer {
    rules: RefreshPace,
    last: Option<Instant>,
    walks_in_row: u32,
}

impl RefreshPacer {
    /// The pace of an upstream that was not walked yet.
    pub fn new(rules: RefreshPace) -> Self {
        Self {
            rules,
            last: None,
            walks_in_row: 0,
        }
    }

    /// The earliest time for the next walk.
    pub fn gate(&self, now: Instant) -> Instant {
        self.last
            .map_or(now, |last| now.max(last + self.interval()))
    }

    /// A walk begins now.
    pub fn begin(&mut self, now: Instant) {
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
            .saturating_sub(self.rules.walks_before_slowing);
        doubled(self.rules.min_interval, doublings, self.rules.max_interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
