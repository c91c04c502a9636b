//! The calls of the process before this one, after a graceful restart. They go on in the sessions
//! and child processes that it handed over, and this process does not see them.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

type HeldValue = Arc<dyn Send + Sync>;

/// The uses of one upstream by the previous process, until that has ended. Clones share them.
#[derive(Clone)]
pub struct PredecessorCalls {
    runs: Arc<watch::Sender<bool>>,
    /// The sessions and child processes that are kept for it. Those that it handed over bound their
    /// number.
    held: Arc<Mutex<Vec<HeldValue>>>,
}

impl Default for PredecessorCalls {
    fn default() -> Self {
        Self {
            runs: Arc::new(watch::Sender::new(false)),
            held: Arc::default(),
        }
    }
}

impl PredecessorCalls {
    /// Notes that the previous process runs, or has ended.
    pub fn set_running(&self, runs: bool) {
        let ended = {
            let mut held = self.held.lock();
            self.runs.send_replace(runs);
            if runs {
                Vec::new()
            } else {
                std::mem::take(&mut *held)
            }
        };
        drop(ended);
    }

    /// True while the previous process may have calls at the upstream.
    pub fn may_run(&self) -> bool {
        *self.runs.borrow()
    }

    /// Keeps a session or child process until the previous process has ended: it counts as used.
    pub fn hold<T: Send + Sync + 'static>(&self, used: &Arc<T>) {
        let mut held = self.held.lock();
        if self.may_run() {
            held.push(used.clone());
        }
    }

    /// Returns a test for values that are kept now.
    pub fn held_values<T>(&self) -> impl Fn(&Arc<T>) -> bool + use<T> {
        let address = |held: &HeldValue| Arc::as_ptr(held).cast::<()>();
        let held: Vec<usize> = self
            .held
            .lock()
            .iter()
            .map(|one| address(one).addr())
            .collect();
        move |value| held.contains(&Arc::as_ptr(value).cast::<()>().addr())
    }

    /// Waits until the previous process has ended, at most until `due`. Cancel safe.
    pub async fn wait_for_end(&self, due: Instant) {
        let mut runs = self.runs.subscribe();
        let _in_time = timeout_at(due, runs.wait_for(|runs| !runs)).await;
    }
}

impl fmt::Debug for PredecessorCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredecessorCalls")
            .field("runs", &self.may_run())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn values_are_kept_until_the_previous_process_has_ended() {
        let calls = PredecessorCalls::default();
        let (used, other) = (Arc::new(1), Arc::new(1));
        calls.hold(&used);
        assert_eq!(Arc::strong_count(&used), 1, "there is no such process");
        calls.set_running(true);
        calls.hold(&used);
        let is_held = calls.held_values();
        assert!(is_held(&used) && !is_held(&other));
        let begun = Instant::now();
        calls.wait_for_end(begun + Duration::from_secs(30)).await;
        assert!(begun.elapsed() >= Duration::from_secs(30));
        assert_eq!(Arc::strong_count(&used), 2);
        let ending = calls.clone();
        tokio::spawn(async move { ending.set_running(false) });
        calls.wait_for_end(begun + Duration::from_secs(600)).await;
        assert!(begun.elapsed() < Duration::from_secs(600), "at its end");
        assert_eq!(Arc::strong_count(&used), 1);
        assert!(!calls.may_run());
    }
}
