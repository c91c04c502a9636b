//! The port of the task book: what is remembered of tasks for their owners, so that they can be
//! listed, and the tasks that are weir's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::failure::Failure;
use crate::names::EndpointId;
use crate::principal::Principal;

/// A task as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTask {
    /// The owner's name for it.
    pub name: Arc<str>,
    /// What was last known of it, in the words of the tasks extension, under that name.
    pub state: Bytes,
    /// True where `state` is all there is to know, and its upstream is not asked any more.
    pub settled: bool,
}

/// The task book. Bounded in tasks, of each owner and altogether, in bytes, and by the tasks' own
/// time; the oldest go first.
pub trait TaskBook: Send + Sync {
    /// Remembers a task for so long; `None`: as long as there is room. One of the same name is
    /// replaced.
    ///
    /// # Errors
    /// `Busy`: there is no room. Nothing changed.
    fn enter(
        &self,
        owner: (&Principal, &EndpointId),
        task: KeptTask,
        ttl: Option<Duration>,
    ) -> Result<(), Failure>;

    /// A task by its name.
    fn find(&self, owner: (&Principal, &EndpointId), name: &str) -> Option<KeptTask>;

    /// Forgets a task.
    fn forget(&self, owner: (&Principal, &EndpointId), name: &str);

    /// The next tasks after a number, oldest first, at most `most`, each with its own number.
    fn page(
        &self,
        owner: (&Principal, &EndpointId),
        after: u64,
        most: usize,
    ) -> Vec<(u64, KeptTask)>;
}
