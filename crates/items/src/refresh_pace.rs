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
    /// doubles, and is at least twice that of a walk.
    pub walks_before_slowing: u32,
    /// The pause that ends a row, after the time at which the next walk may begin.
    pub calm: Duration,
    /// The most that the time grows to. The last change is seen after this time at the latest.
    pub max_interval: Duration,
    /// The most that the time grows to after `walks_before_slowing` walks in a row that found no
    /// change: some servers report changes because weir reads their lists.
    pub max_interval_unchanged: Duration,
}

impl Default for RefreshPace {
    /// Two walks a second at most; ten seconds of that are a storm.
    fn default() -> Self {
        Self {
            min_interval: Duration::from_millis(500),
            walks_before_slowing: 20,
            calm: Duration::from_secs(5),
            max_interval: Duration::from_secs(4),
            max_interval_unchanged: Duration::from_secs(60),
        }
    }
}

/// Keeps the walks over one upstream's list apart. A storm of changes leads to few walks, and the
/// last change to one more; an upstream that never stops changing is walked ever more slowly.
#[derive(Debug)]
pub struct RefreshPacer {
    rules: RefreshPace,
    last: Option<LastWalk>,
    walks_in_row: u32,
    /// The last walks of the row that found no change.
    unchanged_in_row: u32,
}

/// The times of the last walk. They are the same until it ends.
#[derive(Clone, Copy, Debug)]
struct LastWalk {
    began: Instant,
    ended: Instant,
}

impl RefreshPacer {
    /// The pace of an upstream that was not walked yet.
    pub fn new(rules: RefreshPace) -> Self {
        Self {
            rules,
            last: None,
            walks_in_row: 0,
            unchanged_in_row: 0,
        }
    }

    /// The earliest time for the next walk, if the upstream reported a change.
    pub fn gate(&self, now: Instant) -> Instant {
        self.gate_within(self.longest(), now)
    }

    /// The earliest time for the next walk, if others than the upstream request it.
    pub fn requested_gate(&self, now: Instant) -> Instant {
        self.gate_within(self.rules.max_interval, now)
    }

    /// A walk begins now.
    pub fn begin(&mut self, now: Instant) {
        let is_calm = self
            .last
            .is_none_or(|last| now >= self.next_walk(last, self.longest()) + self.rules.calm);
        self.walks_in_row = if is_calm {
            0
        } else {
            self.walks_in_row.saturating_add(1)
        };
        if is_calm {
            self.unchanged_in_row = 0;
        }
        self.last = Some(LastWalk {
            began: now,
            ended: now,
        });
    }

    /// The walk that began last ends now. `has_changed` tells that it found a change.
    pub fn end(&mut self, now: Instant, has_changed: bool) {
        self.unchanged_in_row = if has_changed {
            0
        } else {
            self.unchanged_in_row.saturating_add(1)
        };
        if let Some(last) = &mut self.last {
            last.ended = now;
        }
    }

    /// The longest time between walks because of reported changes.
    fn longest(&self) -> Duration {
        if self.unchanged_in_row < self.rules.walks_before_slowing {
            self.rules.max_interval
        } else {
            self.rules.max_interval_unchanged
        }
    }

    fn gate_within(&self, most: Duration, now: Instant) -> Instant {
        self.last
            .map_or(now, |last| now.max(self.next_walk(last, most)))
    }

    fn next_walk(&self, last: LastWalk, most: Duration) -> Instant {
        let doublings = self
            .walks_in_row
            .saturating_sub(self.rules.walks_before_slowing);
        let mut interval = doubled(self.rules.min_interval, doublings, most);
        if doublings > 0 {
            let walk = last.ended.saturating_duration_since(last.began);
            interval = interval.max((walk * 2).min(most));
        }
        last.began + interval
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
            pace.end(now, true);
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

    /// A server that announces a change whenever weir reads its list was read once in 4 s, for ever.
    #[test]
    fn walks_that_find_no_change_become_seldom_until_one_does() {
        let rules = RefreshPace::default();
        let mut pace = RefreshPacer::new(rules);
        let start = Instant::now();
        let mut now = start;
        let mut walks = 0;
        while now < start + Duration::from_secs(3600) {
            now = pace.gate(now);
            pace.begin(now);
            now += Duration::from_millis(20);
            pace.end(now, false);
            walks += 1;
        }
        assert!((60..120).contains(&walks), "{walks}");
        // Requests of others than the server do not wait for that.
        assert!(pace.requested_gate(now) <= now + rules.max_interval);
        now = pace.gate(now);
        pace.begin(now);
        pace.end(now, true);
        assert!(pace.gate(now) <= now + rules.max_interval);
    }

    #[test]
    fn slow_walks_in_a_row_leave_the_server_half_of_the_time() {
        let rules = RefreshPace::default();
        let mut pace = RefreshPacer::new(rules);
        let mut now = Instant::now();
        let mut last = now;
        for _ in 0..40 {
            now = pace.gate(now);
            last = now;
            pace.begin(now);
            now += Duration::from_millis(1500);
            pace.end(now, true);
        }
        assert!(pace.gate(now) >= last + Duration::from_secs(3));
    }
}
