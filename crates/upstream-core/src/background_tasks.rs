//! The background tasks of one upstream, which end with it.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;
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

impl BackgroundTasks {
    /// Runs a task that has to finish: a retired upstream waits for it, within limits.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_until(self.stop.clone(), task);
    }

    /// Runs a task without an end of its own: a retired upstream ends it at once.
    pub fn spawn_endless(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        self.spawn_until(self.closing.clone(), task)
    }

    /// Runs a task with a time limit of its own of a few seconds. A retired upstream waits for its
    /// end and never aborts it: its owner may be dropped after the other tasks have ended.
    pub fn spawn_timed(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_tracked(task);
    }

    /// Runs a task that has to finish, and returns its outcome. A caller that leaves does not end
    /// the task. Absent if the upstream ended meanwhile.
    pub async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        self.spawn(async move {
            // The caller may be gone.
            let _ = done.send(task.await);
        });
        outcome.await.ok()
    }

    /// Returns a token for a value whose `Drop` spawns a task. A retired upstream waits until the
    /// token is dropped, at most for the grace of [`Self::stop`].
    pub fn hold(&self) -> TaskTrackerToken {
        self.holders.token()
    }

    fn spawn_until(
        &self,
        until: CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        self.spawn_tracked(async move {
            tokio::select! {
                biased;
                () = until.cancelled() => {}
                () = task => {}
            }
        })
    }

    fn spawn_tracked(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        // A reply may be dropped after the end of the runtime, and then the task is not needed.
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(self.tasks.spawn_on(task, &runtime).abort_handle())
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
