//! The fence of a lease: the holder of the lease passes it, until the lease ends by the holder's own
//! clock.
//!
//! The time is checked at each passage. So a process that was stopped for longer than its lease
//! finds the fence closed before any timer of it has run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use weir_core::instant::millis;
use weir_core::port::Clock;

/// The fence. A tenure begins with a lease and ends with it; a renewal in time goes on with the same
/// tenure.
pub struct LeaseFence {
    clock: Arc<dyn Clock>,
    state: Mutex<FenceState>,
}

#[derive(Default)]
struct FenceState {
    tenure: Option<Arc<Tenure>>,
    /// The children of all tenures that still run.
    children: TaskTracker,
    /// True once another process goes on with the lease: nothing new begins here.
    is_handed_over: bool,
}

struct Tenure {
    /// The end, in milliseconds of the clock.
    ending: AtomicU64,
    over: CancellationToken,
    children: TaskTracker,
}

/// The permission of one tenure. Clones are of the same tenure.
#[derive(Clone)]
pub struct FencePass {
    clock: Arc<dyn Clock>,
    tenure: Arc<Tenure>,
}

impl LeaseFence {
    /// A closed fence.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Opens the fence until `ending`, by the monotonic clock. True if that goes on with the tenure
    /// of before; otherwise a new one begins.
    pub fn extend(&self, ending: Duration) -> bool {
        let mut state = self.state.lock();
        if let Some(tenure) = &state.tenure {
            if is_open(tenure, &*self.clock) {
                tenure.ending.fetch_max(millis(ending), Ordering::AcqRel);
                return true;
            }
            tenure.over.cancel();
        }
        state.tenure = Some(Arc::new(Tenure {
            ending: AtomicU64::new(millis(ending)),
            over: CancellationToken::new(),
            children: state.children.clone(),
        }));
        false
    }

    /// Closes the fence, and ends the tenure.
    pub fn close(&self) {
        if let Some(tenure) = self.state.lock().tenure.take() {
            tenure.over.cancel();
        }
    }

    /// True if no child of any tenure runs any more.
    pub fn is_vacant(&self) -> bool {
        self.state.lock().children.is_empty()
    }

    /// Waits until no child of any tenure runs, at most `most`.
    pub async fn wait_until_vacant(&self, most: Duration) {
        let children = self.state.lock().children.clone();
        children.close();
        let _in_time = tokio::time::timeout(most, children.wait()).await;
        children.reopen();
    }

    /// Lets nothing new pass: another process goes on with the lease. Passes of before stay, until
    /// their end by the clock.
    pub fn hand_over(&self) {
        self.state.lock().is_handed_over = true;
    }

    /// Returns a pass; absent while the fence is closed.
    pub fn enter(&self) -> Option<FencePass> {
        let state = self.state.lock();
        let tenure = state.tenure.as_ref().filter(|_| !state.is_handed_over)?;
        is_open(tenure, &*self.clock).then(|| FencePass {
            clock: self.clock.clone(),
            tenure: tenure.clone(),
        })
    }

    /// True while the fence is open.
    pub fn is_open(&self) -> bool {
        let state = self.state.lock();
        state
            .tenure
            .as_ref()
            .is_some_and(|tenure| is_open(tenure, &*self.clock))
    }
}

impl FencePass {
    /// True while the tenure of the pass lasts.
    pub fn is_open(&self) -> bool {
        is_open(&self.tenure, &*self.clock)
    }

    /// Returns the mark of a running child, to be kept until the child has ended.
    pub fn child_mark(&self) -> TaskTrackerToken {
        self.tenure.children.token()
    }

    /// Returns the token that is cancelled when the tenure ends. It may come after the end by the
    /// clock.
    pub fn over(&self) -> CancellationToken {
        self.tenure.over.clone()
    }
}

fn is_open(tenure: &Tenure, clock: &dyn Clock) -> bool {
    !tenure.over.is_cancelled() && millis(clock.monotonic()) < tenure.ending.load(Ordering::Acquire)
}

impl fmt::Debug for LeaseFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseFence")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FencePass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencePass")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::SystemTime;

    use super::*;

    #[derive(Debug, Default)]
    struct TestClock(AtomicU64);

    impl TestClock {
        fn set(&self, seconds: u64) {
            self.0.store(seconds, Ordering::Relaxed);
        }
    }

    impl Clock for TestClock {
        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    fn fence() -> (Arc<TestClock>, LeaseFence) {
        let clock = Arc::new(TestClock::default());
        (clock.clone(), LeaseFence::new(clock))
    }

    #[test]
    fn pass_ends_by_the_clock_and_a_later_lease_does_not_revive_it() {
        let (clock, fence) = fence();
        assert!(fence.enter().is_none());
        fence.extend(Duration::from_secs(10));
        let pass = fence.enter().unwrap();
        clock.set(9);
        assert!(pass.is_open() && fence.is_open());
        clock.set(10);
        assert!(!pass.is_open() && fence.enter().is_none());
        assert!(!pass.over().is_cancelled(), "no timer has run");
        assert!(!fence.extend(Duration::from_secs(20)));
        assert!(pass.over().is_cancelled() && !pass.is_open());
        assert!(fence.enter().unwrap().is_open());
    }

    #[test]
    fn renewal_in_time_keeps_the_pass_and_is_never_shorter() {
        let (clock, fence) = fence();
        fence.extend(Duration::from_secs(10));
        let pass = fence.enter().unwrap();
        clock.set(5);
        assert!(fence.extend(Duration::from_secs(15)));
        assert!(fence.extend(Duration::from_secs(12)));
        clock.set(14);
        assert!(pass.is_open());
        fence.close();
        assert!(!pass.is_open() && pass.over().is_cancelled() && !fence.is_open());
    }

    #[tokio::test]
    async fn fence_is_vacant_once_the_children_of_all_tenures_have_ended() {
        let (_clock, fence) = fence();
        fence.extend(Duration::from_secs(10));
        let mark = fence.enter().unwrap().child_mark();
        fence.close();
        fence.extend(Duration::from_secs(10));
        assert!(!fence.is_vacant());
        fence.wait_until_vacant(Duration::from_millis(1)).await;
        assert!(!fence.is_vacant());
        drop(mark);
        fence.wait_until_vacant(Duration::from_secs(10)).await;
        assert!(fence.is_vacant());
    }

    #[test]
    fn after_a_hand_over_only_earlier_passes_are_of_use() {
        let (_clock, fence) = fence();
        fence.extend(Duration::from_secs(10));
        let pass = fence.enter().unwrap();
        fence.hand_over();
        assert!(pass.is_open() && fence.is_open());
        assert!(fence.enter().is_none());
    }
}
