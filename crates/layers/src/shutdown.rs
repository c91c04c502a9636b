//! The shutdown of the client side: its tasks and its signals.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tasks of the client side that belong to no connection, and the signals of its shutdown.
/// While it drains, it accepts no connection, and running calls may finish. After that the second
/// signal ends the tasks that are bound to it.
#[derive(Debug, Default)]
pub struct Shutdown {
    /// Tasks that the drain waits for.
    detached_tasks: TaskTracker,
    /// Tasks that end after the drain: they receive cancellations and clear sessions away.
    background_tasks: TaskTracker,
    drain: CancellationToken,
    force: CancellationToken,
}

impl Shutdown {
    /// Cancelled when draining begins.
    #[must_use]
    pub fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// True once draining has begun.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Cancelled when draining is over.
    #[must_use]
    pub fn force(&self) -> &CancellationToken {
        &self.force
    }

    /// Spawns a task that the drain waits for, for work that outlives the request that began it.
    pub fn spawn_detached<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.detached_tasks.spawn(task)
    }

    /// As [`Self::spawn_detached`]. The task is dropped when draining is over.
    pub fn spawn_until_force<F>(&self, task: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.detached_tasks.spawn(self.until_force(task));
    }

    /// Spawns a task that the drain does not wait for. It is dropped when draining is over.
    pub(crate) fn spawn_background<F>(&self, task: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.background_tasks.spawn(self.until_force(task));
    }

    /// Drops a task when draining is over. Resolves to `None` in that case.
    fn until_force<F: Future>(&self, task: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        self.force.clone().run_until_cancelled_owned(task)
    }

    /// Waits until all detached tasks have ended, those too that begin meanwhile.
    pub async fn wait_for_detached(&self) {
        self.detached_tasks.close();
        self.detached_tasks.wait().await;
    }

    /// Waits until all background tasks have ended. They end when draining is over.
    pub async fn wait_for_background(&self) {
        self.background_tasks.close();
        self.background_tasks.wait().await;
    }
}
