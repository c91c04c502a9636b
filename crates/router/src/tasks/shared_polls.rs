//! The polls of tasks whose results several requests wait for at once: each poll is of use to all
//! of them, so that further waits put no further load on the task's server.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::names::EndpointId;
use weir_core::principal::Principal;

use super::poll_backoff::PollBackoff;

type PolledTask = (Principal, EndpointId, Arc<str>);

/// The tasks that are polled. The waits for results bound it.
#[derive(Clone, Default)]
pub(crate) struct SharedPolls(Arc<Mutex<HashMap<PolledTask, Weak<SharedPoll>>>>);

/// The polls of one task. One wait polls at a time.
pub(crate) type SharedPoll = tokio::sync::Mutex<PollRecord>;

/// The last polls of one task.
#[derive(Debug, Default)]
pub(crate) struct PollRecord {
    /// The last state, and the time of its poll.
    pub(crate) last: Option<(Instant, Bytes)>,
    pub(crate) backoff: PollBackoff,
}

/// The share of one wait in the polls of its task.
pub(crate) struct PollShare {
    poll: Arc<SharedPoll>,
    /// The table and the task there; absent if the polls are of one wait alone.
    entry: Option<(SharedPolls, PolledTask)>,
}

impl SharedPolls {
    /// A share in the polls of a task.
    pub(crate) fn join(&self, task: PolledTask) -> PollShare {
        let mut polls = self.lock();
        let known = polls.get(&task).and_then(Weak::upgrade);
        let poll = known.unwrap_or_default();
        polls.insert(task.clone(), Arc::downgrade(&poll));
        PollShare {
            poll,
            entry: Some((self.clone(), task)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PolledTask, Weak<SharedPoll>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PollShare {
    /// Polls of one wait alone.
    pub(crate) fn alone() -> Self {
        Self {
            poll: Arc::default(),
            entry: None,
        }
    }

    /// The polls.
    pub(crate) fn poll(&self) -> &SharedPoll {
        &self.poll
    }
}

impl Drop for PollShare {
    fn drop(&mut self) {
        let Some((table, task)) = self.entry.take() else {
            return;
        };
        let mut polls = table.lock();
        // Shares are made and dropped under the lock, so the last one sees that it is the last.
        self.poll = Arc::default();
        if polls
            .get(&task)
            .is_some_and(|poll| poll.strong_count() == 0)
        {
            polls.remove(&task);
        }
    }
}

impl fmt::Debug for SharedPolls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPolls({})", self.lock().len())
    }
}
