//! The background tasks of one upstream, which end with it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The background tasks of one upstream. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BackgroundTasks {
    tasks: TaskTracker,
    /// Values whose `Drop` spawns a task, such as a session that is ended at its server.
    holders: TaskTracker,
    /// Ends tasks that have no end of their own.
    closing: CancellationToken,
    /// Ends all tasks except the timed ones.
    stop: CancellationToken,
}

/// The outcome of a background task; absent if the upstream ended first, or the task panicked.
/// Dropping this does not end the task.
#[derive(Debug)]
pub struct TaskOutcome<T>(Option<JoinHandle<Option<T>>>);

impl BackgroundTasks {
    /// Runs a task that has to finish: a retired upstream waits for it, within limits.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.spawn_until(self.stop.clone(), task));
    }

    /// Runs a task without an end of its own: a retired upstream ends it at once.
    pub fn spawn_endless(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        self.spawn_until(self.closing.clone(), task).abort_handle()
    }

    /// Runs a task with a time limit of its own of a few seconds. A retired upstream waits for its
    /// end and never aborts it: its owner may be dropped after the other tasks have ended.
    pub fn spawn_timed(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.spawn_tracked(task));
    }

    /// Runs a task as [`Self::spawn`] does, and returns its outcome.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> TaskOutcome<T> {
        self.spawn_until(self.stop.clone(), task)
    }

    /// Runs a task as [`Self::spawn_endless`] does, and returns its outcome.
    pub fn run_endless<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> TaskOutcome<T> {
        self.spawn_until(self.closing.clone(), task)
    }

    /// Returns a token for a value whose `Drop` spawns a task. A retired upstream waits until the
    /// token is dropped, at most for the grace of [`Self::stop`].
    pub fn hold(&self) -> TaskTrackerToken {
        self.holders.token()
    }

    fn spawn_until<T: Send + 'static>(
        &self,
        until: CancellationToken,
        task: impl Future<Output = T> + Send + 'static,
    ) -> TaskOutcome<T> {
        TaskOutcome(self.spawn_tracked(async move {
            tokio::select! {
                biased;
                () = until.cancelled() => None,
                outcome = task => Some(outcome),
            }
        }))
    }

    fn spawn_tracked<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        // A reply may be dropped after the end of the runtime, and then the task is not needed.
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(self.tasks.spawn_on(task, &runtime))
    }

    /// Ends the tasks: waits for them at most `grace`, then aborts the rest. Tasks of
    /// [`Self::spawn_timed`] are not aborted. They end sessions at their servers, so the wait may
    /// take longer than `grace` by the timeout of one DELETE, which is 2 s.
    pub async fn stop(&self, grace: Duration) {
        self.tasks.close();
        self.holders.close();
        self.closing.cancel();
        let ended = async {
            // A task may make a holder, whose end begins a task.
            self.tasks.wait().await;
            self.holders.wait().await;
            self.tasks.wait().await;
        };
        let _timed_out = tokio::time::timeout(grace, ended).await;
        self.stop.cancel();
        self.tasks.wait().await;
    }

    /// Aborts the tasks without waiting. Tasks of [`Self::spawn_timed`] go on to their time limit.
    pub fn abort(&self) {
        self.tasks.close();
        self.closing.cancel();
        self.stop.cancel();
    }
}

impl<T> TaskOutcome<T> {
    /// Returns the handle that aborts the task; absent after the end of the runtime.
    pub fn abort_handle(&self) -> Option<AbortHandle> {
        self.0.as_ref().map(JoinHandle::abort_handle)
    }
}

impl<T> Future for TaskOutcome<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut self.0 {
            Some(task) => Pin::new(task).poll(cx).map(|ended| ended.ok().flatten()),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn outcome_is_absent_if_the_upstream_ended_first() {
        let tasks = BackgroundTasks::default();
        assert_eq!(tasks.run_endless(async { 1 }).await, Some(1));
        let (endless, needed) = (tasks.run_endless(pending::<u8>()), tasks.run(async { 2 }));
        tasks.stop(Duration::from_secs(60)).await;
        assert_eq!((endless.await, needed.await), (None, Some(2)));
    }
}
