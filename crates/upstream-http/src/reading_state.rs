//! The reading of a stream in a task of its own: its handle, and the state that it publishes.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use weir_core::upstream::ListKinds;
use weir_upstream_core::list_changes::ListChangeCounts;
use weir_upstream_core::pending_updates::PendingUpdates;

/// The state that a watch's reading task publishes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadingState {
    pub(crate) list_changes: ListChangeCounts,
    pub(crate) lost: Option<Arc<str>>,
    /// True if the server ended the subscription with its result, as it may at any time.
    pub(crate) is_ended: bool,
}

/// The recipients of the state of a reading task.
#[derive(Debug)]
pub(crate) struct ReadingPublisher {
    seen: watch::Sender<ReadingState>,
    /// The recipient of updates of single resources, if any.
    updates: Option<Arc<PendingUpdates>>,
    /// True if the stream is a subscription to a task's status.
    of_task: bool,
}

/// The reader of a session's GET stream, if it is read.
#[derive(Debug, Default)]
pub(crate) struct SessionReading {
    task: Option<ReadingTask>,
    /// The number of stops so far.
    stops: u64,
}

/// The permission to read a session's GET stream, by the number of stops before. The next stop ends
/// it, also while the stream is being opened; so does the move of the session to another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingPermit(u64);

impl SessionReading {
    /// Permits to read until the next stop.
    pub(crate) fn permit(&self) -> ReadingPermit {
        ReadingPermit(self.stops)
    }

    /// True until the stop that ends the permit.
    pub(crate) fn permits(&self, permit: ReadingPermit) -> bool {
        self.stops == permit.0
    }

    /// Replaces the reader.
    pub(crate) fn begin(&mut self, task: ReadingTask) {
        self.task = Some(task);
    }

    /// Ends the reader and all permits.
    pub(crate) fn stop(&mut self) {
        self.stops += 1;
        self.task = None;
    }

    /// True if there is a reader.
    pub(crate) fn is_reading(&self) -> bool {
        self.task.is_some()
    }
}

/// A task that reads a stream. Dropping it ends the task, which closes the stream.
#[derive(Debug)]
pub(crate) struct ReadingTask(Option<AbortHandle>);

impl ReadingPublisher {
    pub(crate) fn new(
        updates: Option<Arc<PendingUpdates>>,
    ) -> (Self, watch::Receiver<ReadingState>) {
        let (seen, heard) = watch::channel(ReadingState::default());
        (
            Self {
                seen,
                updates,
                of_task: false,
            },
            heard,
        )
    }

    /// Makes the publisher for a task's status.
    pub(crate) fn for_task() -> (Self, watch::Receiver<ReadingState>) {
        let (publisher, heard) = Self::new(None);
        (
            Self {
                of_task: true,
                ..publisher
            },
            heard,
        )
    }

    /// Returns the recipient of updates of single resources, if any.
    pub(crate) fn updates(&self) -> Option<&PendingUpdates> {
        self.updates.as_deref()
    }

    /// True if the stream is a subscription to a task's status.
    pub(crate) fn is_of_task(&self) -> bool {
        self.of_task
    }

    /// Publishes a change of these lists.
    pub(crate) fn changed(&self, kinds: ListKinds) {
        self.seen
            .send_modify(|seen| seen.list_changes.record(kinds));
    }

    /// Publishes that the stream is lost.
    pub(crate) fn lost(&self, why: &str) {
        self.seen.send_modify(|seen| seen.lost = Some(why.into()));
    }

    /// Publishes that the server ended the subscription with its result.
    pub(crate) fn ended(&self, why: &str) {
        self.seen.send_modify(|seen| seen.is_ended = true);
        self.lost(why);
    }
}

impl ReadingTask {
    pub(crate) fn new(task: Option<AbortHandle>) -> Self {
        Self(task)
    }
}

impl Drop for ReadingTask {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
