//! The pace of following the changes of an upstream.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::Failure;
use weir_core::port::doubled;
use weir_core::upstream::{ListKinds, ListWatch};

use crate::WalkTrigger;

/// Least time between the starts of two walks: two walks a second at most.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// So many walks in a row without a pause of [`CALM`] count as flapping, ten seconds of the most
/// walks: from there on the time doubles, and is at least twice that of a walk. Walks at a time of
/// weir's own do not count.
const WALKS_BEFORE_SLOWING: u32 = 20;
/// The pause that ends a row, after the time at which the next walk may begin.
const CALM: Duration = Duration::from_secs(5);
/// The most that the time grows to. The last change is seen after this time at the latest.
const MAX_INTERVAL: Duration = Duration::from_secs(4);
/// The most that the time grows to after [`WALKS_BEFORE_SLOWING`] reported changes in a row that
/// were none: some servers report changes because weir reads their lists.
const MAX_INTERVAL_UNCHANGED: Duration = Duration::from_secs(60);

/// Keeps the walks over one upstream's list apart. A storm of changes leads to few walks, and the
/// last change to one more; an upstream that never stops changing is walked ever more slowly.
#[derive(Debug, Default)]
pub struct RefreshPacer {
    /// The beginning of the last walk.
    last: Option<Instant>,
    /// The last walk of the row.
    last_in_row: Option<LastWalk>,
    walks_in_row: u32,
    /// True if the last walk followed a reported change.
    is_reported: bool,
    /// The last reported changes of the row that were none.
    unchanged_in_row: u32,
}

/// The times of a walk. They are the same until it ends.
#[derive(Clone, Copy, Debug)]
struct LastWalk {
    began: Instant,
    ended: Instant,
}

impl RefreshPacer {
    /// The earliest time for the next walk, if the upstream reported a change, and would be walked
    /// after `poll` without one.
    pub fn gate(&self, now: Instant, poll: Duration) -> Instant {
        let most = self.longest().min(poll.max(MAX_INTERVAL));
        self.gate_within(most, now)
    }

    /// The earliest time for the next walk, if others than the upstream request it.
    pub fn requested_gate(&self, now: Instant) -> Instant {
        self.gate_within(MAX_INTERVAL, now)
    }

    /// A walk begins now.
    pub fn begin(&mut self, now: Instant, trigger: WalkTrigger) {
        self.last = Some(now);
        self.is_reported = matches!(trigger, WalkTrigger::Announced(_));
        if matches!(trigger, WalkTrigger::Poll | WalkTrigger::Retry) {
            return;
        }
        let is_calm = self
            .last_in_row
            .is_none_or(|last| now >= self.next_walk(last, self.longest()) + CALM);
        self.walks_in_row = if is_calm {
            0
        } else {
            self.walks_in_row.saturating_add(1)
        };
        if is_calm {
            self.unchanged_in_row = 0;
        }
        self.last_in_row = Some(LastWalk {
            began: now,
            ended: now,
        });
    }

    /// The walk that began last ends now. `has_changed` tells that it found a change.
    pub fn end(&mut self, now: Instant, has_changed: bool) {
        if has_changed {
            self.unchanged_in_row = 0;
        } else if self.is_reported {
            self.unchanged_in_row = self.unchanged_in_row.saturating_add(1);
        }
        if let Some(last) = &mut self.last_in_row
            && self.last == Some(last.began)
        {
            last.ended = now;
        }
    }

    /// The longest time between walks because of reported changes.
    fn longest(&self) -> Duration {
        if self.unchanged_in_row < WALKS_BEFORE_SLOWING {
            MAX_INTERVAL
        } else {
            MAX_INTERVAL_UNCHANGED
        }
    }

    fn gate_within(&self, most: Duration, now: Instant) -> Instant {
        let row = self.last_in_row.map(|last| self.next_walk(last, most));
        let least = self.last.map(|last| last + MIN_INTERVAL);
        row.into_iter().chain(least).fold(now, Instant::max)
    }

    fn next_walk(&self, last: LastWalk, most: Duration) -> Instant {
        let doublings = self.walks_in_row.saturating_sub(WALKS_BEFORE_SLOWING);
        let mut interval = doubled(MIN_INTERVAL, doublings, most);
        if doublings > 0 {
            let walk = last.ended.saturating_duration_since(last.began);
            interval = interval.max((walk * 2).min(most));
        }
        last.began + interval
    }
}

/// Waits for the end of `pause`, and takes the announced changes of lists meanwhile, to those of
/// `before`. Calls `count` for each announcement.
///
/// # Errors
/// The watch is lost.
pub async fn announced_until(
    pause: impl Future<Output = ()>,
    watch: &mut dyn ListWatch,
    before: ListKinds,
    count: impl Fn(),
) -> Result<ListKinds, Failure> {
    let (mut pause, mut kinds) = (pin!(pause), before);
    loop {
        tokio::select! {
            biased;
            () = &mut pause => return Ok(kinds),
            changed = watch.next_change() => {
                kinds = kinds.or(changed?);
                count();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;
    use weir_core::port::BoxFuture;
    use weir_core::upstream::{ListKind, ListPage, ServerDescription};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn reported() -> WalkTrigger {
        WalkTrigger::Announced(ListKinds::default())
    }

    // Proves D11.
    #[test]
    fn at_most_two_walks_a_second_and_ever_fewer_when_it_never_stops() {
        let mut pace = RefreshPacer::default();
        let start = Instant::now();
        let (mut now, mut starts) = (start, Vec::new());
        while now < start + Duration::from_secs(60) {
            now = pace.gate(now, MINUTE);
            pace.begin(now, reported());
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
        assert_eq!(pace.gate(later, MINUTE), later);
        pace.begin(later, reported());
        assert_eq!(pace.gate(later, MINUTE), later + Duration::from_millis(500));
    }

    /// A server that announces a change whenever weir reads its list was read once in 4 s, for ever.
    #[test]
    fn walks_that_find_no_change_become_seldom_until_one_does() {
        let mut pace = RefreshPacer::default();
        let start = Instant::now();
        let mut now = start;
        let mut walks = 0;
        while now < start + Duration::from_secs(3600) {
            now = pace.gate(now, MINUTE);
            pace.begin(now, reported());
            now += Duration::from_millis(20);
            pace.end(now, false);
            walks += 1;
        }
        assert!((60..120).contains(&walks), "{walks}");
        // Requests of others than the server do not wait for that.
        assert!(pace.requested_gate(now) <= now + MAX_INTERVAL);
        // Nor does the time at which weir reads the lists anyway.
        let poll = Duration::from_secs(10);
        assert!(pace.gate(now, poll) <= now + poll);
        assert!(pace.gate(now, Duration::ZERO) <= now + MAX_INTERVAL);
        now = pace.gate(now, MINUTE);
        pace.begin(now, reported());
        pace.end(now, true);
        assert!(pace.gate(now, MINUTE) <= now + MAX_INTERVAL);
    }

    #[test]
    fn change_after_many_polls_is_followed_at_once() {
        let mut pace = RefreshPacer::default();
        let mut now = Instant::now();
        for trigger in [WalkTrigger::Poll, WalkTrigger::Retry] {
            for _ in 0..100 {
                now = pace.requested_gate(now + Duration::from_secs(2));
                pace.begin(now, trigger);
                now += Duration::from_millis(20);
                pace.end(now, false);
            }
            assert!(pace.gate(now, MINUTE) <= now + MIN_INTERVAL);
        }
        // One of the two stood between the walks of a storm.
        for _ in 0..100 {
            now = pace.gate(now, MINUTE);
            pace.begin(now, reported());
            pace.end(now, false);
            pace.begin(now, WalkTrigger::Poll);
            pace.end(now, false);
        }
        assert!(pace.gate(now, MINUTE) > now + MAX_INTERVAL);
    }

    /// A watch with these outcomes, which waits after them.
    struct ScriptedWatch(Vec<Result<ListKinds, Failure>>);

    impl ListWatch for ScriptedWatch {
        fn about(&self) -> &ServerDescription {
            unreachable!("it is not asked")
        }

        fn list(
            &mut self,
            _kind: ListKind,
            _cursor: Option<String>,
        ) -> BoxFuture<'_, Result<ListPage, Failure>> {
            unreachable!("it is not listed")
        }

        fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
            match self.0.pop() {
                Some(outcome) => Box::pin(std::future::ready(outcome)),
                None => Box::pin(std::future::pending()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pause_takes_announced_changes_and_ends_with_the_watch() {
        let only = |kind| ListKinds::default().with(kind);
        let (begun, counted) = (Instant::now(), Cell::new(0));
        let mut watch = ScriptedWatch(vec![
            Ok(only(ListKind::Prompts)),
            Ok(only(ListKind::Resources)),
        ]);
        let count = || counted.set(counted.get() + 1);
        let before = only(ListKind::Tools);
        let kinds = announced_until(sleep(MINUTE), &mut watch, before, count).await;
        assert!(begun.elapsed() >= MINUTE);
        assert_eq!(counted.get(), 2);
        let all = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        assert_eq!(kinds.ok(), Some(all.into_iter().collect()));

        let lost = Failure::internal("lost");
        let mut watch = ScriptedWatch(vec![Err(lost), Ok(before)]);
        let kinds = announced_until(sleep(MINUTE), &mut watch, before, count).await;
        assert!(kinds.is_err());
        assert!(begun.elapsed() < MINUTE * 2, "at once");
    }

    #[test]
    fn slow_walks_in_a_row_leave_the_server_half_of_the_time() {
        let mut pace = RefreshPacer::default();
        let mut now = Instant::now();
        let mut last = now;
        for _ in 0..40 {
            now = pace.gate(now, MINUTE);
            last = now;
            pace.begin(now, reported());
            now += Duration::from_millis(1500);
            pace.end(now, true);
        }
        assert!(pace.gate(now, MINUTE) >= last + Duration::from_secs(3));
    }
}
