//! The polls of tasks whose results several requests wait for at once: each poll is of use to all
//! of them, so that further waits put no further load on the task's server. Clients that follow a
//! task learn of the states that these polls and other requests find.
//!
//! An answer to the task and its cancellation outdate the polls from before, and wake all waits. The
//! server may still list a question for a while after its answer, so the answered questions are
//! remembered.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use weir_core::names::EndpointId;
use weir_core::principal::Principal;
use weir_wire::scan;

use crate::tasks::poll_backoff::PollBackoff;

pub(crate) type PolledTask = (Principal, EndpointId, Arc<str>);

/// The tasks that are polled. The waits for results, and the clients that follow tasks, bound it.
#[derive(Clone, Default)]
pub(crate) struct SharedPolls(Arc<Mutex<HashMap<PolledTask, Weak<SharedPoll>>>>);

/// The polls of one task.
#[derive(Debug, Default)]
pub(crate) struct SharedPoll {
    /// The last polls. One wait polls at a time.
    pub(crate) record: tokio::sync::Mutex<PollRecord>,
    /// The number of answers and cancellations so far.
    changes: watch::Sender<u64>,
    /// The digest of the last state that was found; absent after a change.
    found: watch::Sender<Option<u64>>,
    /// The keys of the questions with an answer that the server took, or is about to.
    answered: Mutex<HashSet<String>>,
}

/// The last polls of one task.
#[derive(Debug, Default)]
pub(crate) struct PollRecord {
    pub(crate) last: Option<LastPoll>,
    pub(crate) backoff: PollBackoff,
}

/// The last poll that was answered.
#[derive(Clone, Debug)]
pub(crate) struct LastPoll {
    /// The time of the answer.
    pub(crate) polled: Instant,
    pub(crate) state: Bytes,
    /// The changes before the poll.
    pub(crate) changes: u64,
}

impl SharedPoll {
    /// The number of answers and cancellations so far. A poll that began before the last one of
    /// them is outdated.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Announcements of answers and cancellations from now on.
    pub(crate) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notes an answer to the task, or its cancellation.
    pub(crate) fn note_change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
        self.found.send_replace(None);
    }

    /// Notes a state of the task that a request found.
    pub(crate) fn note_state(&self, state: &Bytes) {
        let digest = Some(digest(state));
        self.found.send_if_modified(|found| {
            let is_other = *found != digest;
            *found = digest;
            is_other
        });
    }

    /// Marks a question as answered, unless the mark is dropped.
    pub(crate) fn mark_answered(&self, key: &str) -> AnsweredMark<'_> {
        self.answered.lock().insert(key.to_owned());
        AnsweredMark {
            poll: self,
            key: Some(key.to_owned()),
        }
    }

    /// True if the question of this key is answered.
    pub(crate) fn is_answered(&self, key: &str) -> bool {
        self.answered.lock().contains(key)
    }
}

/// The mark of a question with an answer on its way. Dropping it removes the mark.
pub(crate) struct AnsweredMark<'a> {
    poll: &'a SharedPoll,
    key: Option<String>,
}

impl AnsweredMark<'_> {
    /// Keeps the mark: the server took the answer.
    pub(crate) fn keep(mut self) {
        self.key = None;
    }
}

impl Drop for AnsweredMark<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.poll.answered.lock().remove(&key);
        }
    }
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
        let mut polls = self.0.lock();
        let known = polls.get(&task).and_then(Weak::upgrade);
        let poll = known.unwrap_or_default();
        polls.insert(task.clone(), Arc::downgrade(&poll));
        PollShare {
            poll,
            entry: Some((self.clone(), task)),
        }
    }

    /// Notes an answer to a task, or its cancellation.
    pub(crate) fn note_change(&self, task: &PolledTask) {
        self.with_poll(task, SharedPoll::note_change);
    }

    /// Notes a state of a task that a request found.
    pub(crate) fn note_state(&self, task: &PolledTask, state: &Bytes) {
        self.with_poll(task, |poll| poll.note_state(state));
    }

    /// Uses the polls of a task, if it is polled: under the lock, so that no reference to them is
    /// left when the last share is dropped.
    fn with_poll(&self, task: &PolledTask, note: impl FnOnce(&SharedPoll)) {
        let polls = self.0.lock();
        if let Some(poll) = polls.get(task).and_then(Weak::upgrade) {
            note(&poll);
        }
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

/// The changes of a task that other requests about it find, for a client that follows it.
pub struct TaskChanges {
    found: watch::Receiver<Option<u64>>,
    _share: PollShare,
}

impl TaskChanges {
    pub(crate) fn of(share: PollShare) -> Self {
        Self {
            found: share.poll().found.subscribe(),
            _share: share,
        }
    }

    /// Waits until a request about the task finds another state than the known one, or changes the
    /// task. Cancel safe.
    pub async fn wait_for_other_state(&mut self, known: Option<&Bytes>) {
        let known = known.map(digest);
        loop {
            // The share has the sender.
            let _open = self.found.changed().await;
            if *self.found.borrow_and_update() != known {
                return;
            }
        }
    }
}

/// The digest of the members of a state whose change matters to a client. Others do not: a server
/// may change the times with each answer, and the result and the questions come with a status.
fn digest(state: &Bytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    for member in ["status", "statusMessage"] {
        let value = scan::find(state, member).map(|at| &state[at]);
        value.hash(&mut hasher);
    }
    hasher.finish()
}

impl Drop for PollShare {
    fn drop(&mut self) {
        let Some((table, task)) = self.entry.take() else {
            return;
        };
        let mut polls = table.0.lock();
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

impl fmt::Debug for TaskChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskChanges").finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedPolls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPolls({})", self.0.lock().len())
    }
}
