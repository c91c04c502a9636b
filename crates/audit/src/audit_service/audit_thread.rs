//! The threads of the audit. They wait for disks and pipes, and such waits cannot be interrupted.
//! So they are not tokio's: a hanging disk must block neither a worker of the runtime nor the end
//! of the process.

use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// A running thread. Its owner waits for its end, for a bounded time.
#[derive(Debug)]
pub(super) struct AuditThread {
    thread: thread::Thread,
    ended: oneshot::Receiver<()>,
}

impl AuditThread {
    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// The system has no thread.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (end, ended) = oneshot::channel();
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                work();
                // The receiver may be dropped.
                let _ = end.send(());
            })?;
        Ok(Self {
            thread: handle.thread().clone(),
            ended,
        })
    }

    /// Wakes the thread from a wait between two attempts.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    /// Waits for the thread's end. Returns false if it hangs; then it ends with the process.
    pub(super) async fn wait_for_end(self, within: Duration) -> bool {
        // An error is a thread that ended by a panic: it has ended too.
        tokio::time::timeout(within, self.ended).await.is_ok()
    }
}
