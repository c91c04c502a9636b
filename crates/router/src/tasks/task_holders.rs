//! The other processes that may have a task: the replica whose call became the task, and the
//! processes before and after this one in a graceful restart.

use std::fmt;

use bytes::Bytes;
use weir_core::call::Call;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::{BoxFuture, ReplicaId};

/// The other processes that may have the task of a request. They answer as the server of the task
/// does, under the client's name for the task.
pub trait TaskHolders: fmt::Debug + Send + Sync {
    /// Makes a request about a task at the replica whose call became the task. `None` if that
    /// replica may not answer now. Cancel safe.
    ///
    /// # Errors
    /// `UnknownTask` if the replica does not have the task; `Unavailable` if it does not answer;
    /// `Unauthenticated` if it does not take the client's credentials, or not any more; else its
    /// failure.
    fn ask_replica<'a>(
        &'a self,
        replica: &'a ReplicaId,
        call: &'a Call,
    ) -> BoxFuture<'a, Result<Option<Bytes>, Failure>>;

    /// True if that replica may run, although it may not answer now: a task that is not found
    /// elsewhere may still be there.
    fn may_run(&self, replica: &ReplicaId) -> bool;

    /// True if a process before or after this one may have tasks.
    fn may_ask_process(&self) -> bool;

    /// Makes a request about a task at the processes before and after this one. `None` if these have
    /// ended: all that the one before kept is in this one by then. Cancel safe.
    ///
    /// # Errors
    /// As [`Self::ask_replica`].
    fn ask_process<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Option<Bytes>, Failure>>;
}

/// The failure of a request that the process with the task does not answer.
#[must_use]
pub fn silent_holder() -> Failure {
    let text = "The process of weir that has the task does not answer: try again shortly";
    Failure::new(FailureKind::Unavailable, text)
}
