//! Supervision of tasks that run as long as a part of weir does: a panic must not end the part for
//! good.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep};

use crate::port::doubled;

/// The wait before the first restart; it doubles up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait, and the time after which a task counts as sound again.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Runs a task that `begin` makes, and a new one after each panic. Cancel safe if the task is.
pub async fn run_supervised<T, F>(task: &'static str, mut begin: T) -> F::Output
where
    T: FnMut() -> F,
    F: Future,
{
    let mut panics = 0;
    loop {
        let begun = Instant::now();
        let running = async { begin().await };
        if let Ok(ended) = AssertUnwindSafe(running).catch_unwind().await {
            return ended;
        }
        if begun.elapsed() >= MAX_WAIT {
            panics = 0;
        }
        let wait = doubled(FIRST_WAIT, panics, MAX_WAIT);
        panics += 1;
        let seconds = wait.as_secs();
        tracing::error!(task, seconds, "internal error: task restarts after a panic");
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn task_that_panics_begins_again_after_growing_waits() {
        let begun = Instant::now();
        let mut times = Vec::new();
        let outcome = run_supervised("test", || {
            times.push(begun.elapsed().as_secs());
            let nth = times.len();
            async move {
                assert!(nth > 4, "a fault");
                nth
            }
        });
        assert_eq!(outcome.await, 5);
        assert_eq!(times, [0, 1, 3, 7, 15]);
    }
}
