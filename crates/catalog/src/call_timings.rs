//! Outcomes and durations of one upstream's calls in the last minute or two, for a current display.
//! It is no metric: those have histories.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::CallOutcome;

/// The length of a window. The running window and the one before it are shown.
const WINDOW: Duration = Duration::from_secs(60);
/// Four buckets to every doubling, from a microsecond up: a shown time is at most a quarter too
/// long.
const BUCKETS: usize = 4 * 40;

/// Counts and times, written by every call as it ends. It costs a call two additions.
#[derive(Debug)]
pub struct CallTimings {
    begun: Instant,
    window: AtomicU64,
    now: TimingCounts,
    before: TimingCounts,
}

#[derive(Debug)]
struct TimingCounts {
    took: [AtomicU32; BUCKETS],
    failed: AtomicU32,
    tool_errors: AtomicU32,
}

/// Outcomes and durations of calls in the last minute or two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentCallTimings {
    /// Calls that ended.
    pub calls: u64,
    /// Those that the upstream or weir failed.
    pub failed: u64,
    /// Those that tools answered with an error of their own.
    pub tool_errors: u64,
    /// The time that half of them took at most; absent without calls.
    pub median: Option<Duration>,
    /// The time that 99 of 100 took at most.
    pub p99: Option<Duration>,
}

impl Default for CallTimings {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            window: AtomicU64::new(0),
            now: TimingCounts::default(),
            before: TimingCounts::default(),
        }
    }
}

impl Default for TimingCounts {
    fn default() -> Self {
        Self {
            took: std::array::from_fn(|_| AtomicU32::new(0)),
            failed: AtomicU32::new(0),
            tool_errors: AtomicU32::new(0),
        }
    }
}

impl CallTimings {
    /// Counts a call that ended at `ended` with this outcome. A cancelled call failed for its client
    /// alone: here the failures of weir and of the upstream are counted.
    pub fn note(&self, outcome: CallOutcome, took: Duration, ended: Instant) {
        self.rotate(ended);
        match outcome {
            CallOutcome::Complete
            | CallOutcome::InputRequired
            | CallOutcome::Task
            | CallOutcome::Cancelled => {}
            CallOutcome::ToolError => drop(self.now.tool_errors.fetch_add(1, Ordering::Relaxed)),
            CallOutcome::Failed(_) => drop(self.now.failed.fetch_add(1, Ordering::Relaxed)),
        }
        self.now.took[bucket(took)].fetch_add(1, Ordering::Relaxed);
    }

    /// The calls of the running window and the one before it.
    pub fn recent(&self) -> RecentCallTimings {
        self.rotate(Instant::now());
        let both = |of: fn(&TimingCounts) -> &AtomicU32| {
            u64::from(of(&self.now).load(Ordering::Relaxed))
                + u64::from(of(&self.before).load(Ordering::Relaxed))
        };
        let took: Vec<u64> = (self.now.took.iter().zip(&self.before.took))
            .map(|(now, before)| {
                u64::from(now.load(Ordering::Relaxed)) + u64::from(before.load(Ordering::Relaxed))
            })
            .collect();
        let calls: u64 = took.iter().sum();
        let share = |percent: u64| {
            let nth = (calls * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let at = took.iter().position(|count| {
                seen += count;
                seen >= nth
            });
            at.map(end)
        };
        RecentCallTimings {
            calls,
            failed: both(|counts| &counts.failed),
            tool_errors: both(|counts| &counts.tool_errors),
            median: share(50),
            p99: share(99),
        }
    }

    /// Begins a new window if the last is over at `now`. Calls that end in this very moment may count in
    /// either.
    fn rotate(&self, now: Instant) {
        let window = now.saturating_duration_since(self.begun).as_secs() / WINDOW.as_secs();
        let last = self.window.load(Ordering::Relaxed);
        if window == last
            || self
                .window
                .compare_exchange(last, window, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let next = window == last + 1;
        let pairs = self.now.all().zip(self.before.all());
        pairs.for_each(|(now, before)| {
            let count = now.swap(0, Ordering::Relaxed);
            before.store(if next { count } else { 0 }, Ordering::Relaxed);
        });
    }
}

impl TimingCounts {
    fn all(&self) -> impl Iterator<Item = &AtomicU32> {
        self.took.iter().chain([&self.failed, &self.tool_errors])
    }
}

/// The bucket of a duration, four to every doubling of microseconds.
fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(4);
    let power = micros.ilog2() as usize;
    // The two bits behind the first one.
    let quarter = (micros >> (power - 2)) as usize & 3;
    ((power - 2) * 4 + quarter).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn end(bucket: usize) -> Duration {
    let (power, quarter) = (bucket / 4, bucket as u64 % 4);
    Duration::from_micros((5 + quarter) << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_at_most_a_quarter_longer() {
        for micros in [4, 5, 7, 8, 100, 999, 1000, 65_537, 1_000_000, 3_600_000_000] {
            let took = Duration::from_micros(micros);
            let shown = end(bucket(took));
            assert!(
                shown > took && shown <= took.mul_f64(1.25) + Duration::from_micros(1),
                "{took:?} {shown:?}"
            );
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_older_than_two_minutes_are_dropped() {
        let timings = CallTimings::default();
        assert_eq!(timings.recent(), RecentCallTimings::default());
        for _ in 0..98 {
            timings.note(
                CallOutcome::Complete,
                Duration::from_millis(10),
                Instant::now(),
            );
        }
        timings.note(
            CallOutcome::ToolError,
            Duration::from_millis(10),
            Instant::now(),
        );
        for outcome in [
            CallOutcome::Failed("timed_out"),
            CallOutcome::Failed("unavailable"),
            CallOutcome::Cancelled,
        ] {
            timings.note(outcome, Duration::from_secs(10), Instant::now());
        }
        let recent = timings.recent();
        assert_eq!(
            (recent.calls, recent.failed, recent.tool_errors),
            (102, 2, 1)
        );
        let (median, p99) = (
            recent.median.unwrap_or_default(),
            recent.p99.unwrap_or_default(),
        );
        assert!(
            median < Duration::from_millis(13) && p99 >= Duration::from_secs(10),
            "{median:?} {p99:?}"
        );
        tokio::time::advance(WINDOW).await;
        assert_eq!(
            timings.recent().calls,
            102,
            "the window before is shown too"
        );
        timings.note(
            CallOutcome::Complete,
            Duration::from_millis(1),
            Instant::now(),
        );
        assert_eq!(timings.recent().calls, 103);
        tokio::time::advance(WINDOW).await;
        assert_eq!(timings.recent().calls, 1);
        tokio::time::advance(WINDOW * 5).await;
        assert_eq!(timings.recent(), RecentCallTimings::default());
    }
}
