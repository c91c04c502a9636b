//! The port of the task book: it keeps tasks for their owners, so that they can be listed, and the
//! tasks that are weir's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;

use crate::failure::Failure;
use crate::names::EndpointId;
use crate::port::BoxFuture;
use crate::principal::Principal;

/// A task as the book keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTask {
    /// The owner's name for it.
    pub name: Arc<str>,
    /// Its last known state, in the form of the tasks extension, under that name.
    pub state: Bytes,
    /// True if `state` is final, and its upstream is not asked any more.
    pub settled: bool,
}

impl KeptTask {
    /// True if its state has a result.
    #[must_use]
    pub fn has_result(&self) -> bool {
        scan::find(&self.state, "result").is_some()
    }

    /// The state without its result, error and questions, as lists of tasks show it. No value if
    /// the state is no object.
    #[must_use]
    pub fn summary(&self) -> Option<Bytes> {
        let edits = ["result", "error", "inputRequests"];
        let edits = edits
            .into_iter()
            .fold(ObjectEdits::new(), ObjectEdits::remove);
        edits.apply_checked(&self.state).ok().map(|edited| edited.0)
    }
}

/// The task book. Bounded in tasks, of each owner and altogether, in bytes, and by the tasks' own
/// time. Of one owner, open tasks make room first, then those with fetched results; the oldest go
/// first. Results that were not fetched stay.
pub trait TaskBook: std::fmt::Debug + Send + Sync {
    /// Keeps a task for `ttl`, or without one as long as there is room. One of the same name is
    /// replaced.
    ///
    /// # Errors
    ///
    /// `ResultUnknown`: there is no room. No task changed.
    fn enter(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        task: KeptTask,
        ttl: Option<Duration>,
    ) -> Result<(), Failure>;

    /// A task by its name.
    fn find(&self, principal: &Principal, endpoint: &EndpointId, name: &str) -> Option<KeptTask>;

    /// Fetches a task that the process before or after this one keeps, while both run. Waits for
    /// tasks that are on their way from there. No value if there is no such process, or the task is
    /// not found. Cancel safe.
    fn find_moved<'a>(
        &'a self,
        _principal: &'a Principal,
        _endpoint: &'a EndpointId,
        _name: &'a str,
    ) -> BoxFuture<'a, Option<KeptTask>> {
        Box::pin(std::future::ready(None))
    }

    /// Fetches a task that another replica kept, which has ended since. No value if it is not
    /// found, or cannot be fetched now. Cancel safe.
    fn recover<'a>(
        &'a self,
        _principal: &'a Principal,
        _endpoint: &'a EndpointId,
        _name: &'a str,
    ) -> BoxFuture<'a, Option<KeptTask>> {
        Box::pin(std::future::ready(None))
    }

    /// Notes that the owner has fetched the result of a task, which may make room from now on.
    fn note_fetched(&self, principal: &Principal, endpoint: &EndpointId, name: &str);

    /// Removes a task.
    fn forget(&self, principal: &Principal, endpoint: &EndpointId, name: &str);

    /// The next tasks after a number, oldest first, at most `most`, each with its own number.
    fn page(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        after: u64,
        most: usize,
    ) -> Vec<(u64, KeptTask)>;

    /// The same over all replicas. Tasks of others have their last known state, without a result.
    /// Positions go on from those of the page before. Cancel safe.
    ///
    /// # Errors
    ///
    /// `Busy`: the page that follows cannot be read now.
    fn page_of_all<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, KeptTask)>, Failure>> {
        let page = self.page(principal, endpoint, after, most);
        Box::pin(std::future::ready(Ok(page)))
    }
}
