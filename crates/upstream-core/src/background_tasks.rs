//! The background tasks of one upstream, which end with it.

use std::future::Future;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The background tasks of one upstream. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BackgroundTasks {
    tasks: TaskTracker,
    /// Ends tasks that have no end of their own.
    closing: CancellationToken,
    /// Ends all tasks.
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

    fn spawn_until(
        &self,
        until: CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        // A reply may be dropped after the end of the runtime, and then the task is not needed.
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let task = async move {
            tokio::select! {
                biased;
                () = until.cancelled() => {}
                () = task => {}
            }
        };
        Some(self.tasks.spawn_on(task, &runtime).abort_handle())
    }

    /// Ends the tasks: waits for them at most `grace`, then aborts the rest.
    pub async fn stop(&self, grace: Duration) {
        self.tasks.close();
        self.closing.cancel();
        let _timed_out = tokio::time::timeout(grace, self.tasks.wait()).await;
        self.stop.cancel();
        self.tasks.wait().await;
    }

    /// Ends the tasks without waiting.
    pub fn abort(&self) {
        self.tasks.close();
        self.closing.cancel();
        self.stop.cancel();
    }
}
