//! The other processes that may have a task: the replica whose call became the task, and the
//! process before this one in a graceful restart.

use std::fmt;

use bytes::Bytes;
use weir_core::call::Call;
use weir_core::failure::Failure;
use weir_core::port::{Fut, ReplicaId};

/// The other processes that may have the task of a request. They answer as the server of the task
/// does, under the client's name for the task.
pub trait TaskHolders: fmt::Debug + Send + Sync {
    /// Makes a request about a task at the replica whose call became the task. `None` if that
    /// replica is gone, as far as this one knows. Cancel safe.
    ///
    /// # Errors
    /// `UnknownTask` if the replica does not have the task; `Unavailable` if it does not answer;
    /// else its failure.
    fn ask_replica<'a>(
        &'a self,
        replica: &'a ReplicaId,
        call: &'a Call,
    ) -> Fut<'a, Result<Option<Bytes>, Failure>>;

    /// True if the process before this one may have tasks.
    fn may_ask_predecessor(&self) -> bool;

    /// Makes a request about a task at the process before this one. `None` if that process has
    /// ended: all that it kept is in this one by then. Cancel safe.
    ///
    /// # Errors
    /// As [`Self::ask_replica`].
    fn ask_predecessor<'a>(&'a self, call: &'a Call) -> Fut<'a, Result<Option<Bytes>, Failure>>;
}
