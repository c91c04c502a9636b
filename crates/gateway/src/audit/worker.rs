//! Threads of the audit. They wait for disks and pipes, which nothing can interrupt, so they are
//! none of tokio's: a hanging disk must not hold a worker of the runtime, nor the end of the
//! process.

use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// A running thread. It ends when what it works on ends; whoever holds this waits for that, for a
/// while.
#[derive(Debug)]
pub(super) struct Worker {
    thread: thread::Thread,
    ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system has none.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (end, ended) = oneshot::channel();
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                work();
                // Nobody may be waiting any more.
                let _ = end.send(());
            })?;
        Ok(Self {
            thread: handle.thread().clone(),
            ended,
        })
    }

    /// Lets it look up from a wait between two attempts.
    pub(super) fn nudge(&self) {
        self.thread.unpark();
    }

    /// Waits for its end. False: it hangs, and goes with the process.
    pub(super) async fn ended(self, within: Duration) -> bool {
        // An error is a thread that ended by a panic: it is over too.
        tokio::time::timeout(within, self.ended).await.is_ok()
    }
}
