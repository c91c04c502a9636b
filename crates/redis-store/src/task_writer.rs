//! Writes the kept tasks of this replica to the shared store, behind the requests about them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::Mutex;
use redis::cmd;
use tokio::sync::Notify;
use tokio::time::sleep;
use weir_core::instant::millis;
use weir_core::port::StoreError;
use weir_core::telemetry::instruments;
use weir_store::{PendingCount, PendingSum};

use crate::link_status::CommandEffect;
use crate::pauses::{STORE_BACKOFF, next_pause};
use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink, RunningCommand};
use crate::scripts::{LIST_TASK, READ_TASKS};
use crate::task_list::{TaskListChange, TaskListKeys};

/// The most changes that wait. The oldest gives way.
const MAX_PENDING: usize = 2_000;
/// The longest time that a copy of a task, or its entry in a list, lives.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// The most tasks in the list of one owner, as at a single replica.
const MAX_LISTED: usize = 256;
/// A change of a task on its way to the shared store.
#[derive(Debug)]
pub(crate) enum TaskChange {
    /// The sealed task is kept under this name of a key, for a time.
    Kept {
        name: String,
        sealed: String,
        ttl: Duration,
    },
    /// The key of this name is removed.
    Removed { name: String },
    /// Its owner's list changes.
    Listed(TaskListChange),
}

impl TaskChange {
    /// The key that the change is written to, and the field in it if it is one of several.
    fn target(&self) -> (&str, Option<&str>) {
        match self {
            Self::Kept { name, .. } | Self::Removed { name } => (name, None),
            Self::Listed(change) => (&change.keys.entries, Some(&change.field)),
        }
    }
}

/// The write-behind of kept tasks.
pub(crate) struct TaskWriter {
    link: Arc<RedisLink>,
    waiting: Mutex<WaitingChanges>,
    wake: Notify,
    pending: PendingCount,
}

/// The changes that wait, each with its number.
#[derive(Default)]
struct WaitingChanges {
    /// One that could not be written is behind the others.
    changes: VecDeque<(u64, TaskChange)>,
    /// The number of the change that is being written.
    writing: Option<u64>,
    /// The number of the newest change.
    last: u64,
}

impl TaskWriter {
    /// A writer without changes; [`Self::keep_writing`] sends them.
    pub(crate) fn new(link: Arc<RedisLink>, sum: PendingSum) -> Self {
        Self {
            link,
            waiting: Mutex::default(),
            wake: Notify::new(),
            pending: PendingCount::new(sum),
        }
    }

    /// The number of changes that wait.
    pub(crate) fn pending(&self) -> &PendingCount {
        &self.pending
    }

    /// Has a change written soon.
    pub(crate) fn write_later(&self, change: TaskChange) {
        self.waiting.lock().add(change);
        self.publish_pending();
        self.wake.notify_one();
    }

    /// Reads a sealed task.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut command = cmd("GET");
        command.arg(name);
        let limit = self.link.command_timeout();
        self.link.query("read_task", limit, &command).await
    }

    /// Reads entries of a list after a position: the position and the sealed entry of each. Changes of
    /// this replica that wait by then are written first, within the time limit of a request.
    pub(crate) async fn read_list(
        &self,
        keys: &TaskListKeys,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, String)>, StoreError> {
        let limit = self.link.command_timeout();
        let last = self.waiting.lock().last;
        let are_written = |_| self.waiting.lock().are_written(last);
        self.pending.wait_until(limit, are_written).await;
        let mut call = READ_TASKS.prepare_invoke();
        call.key(&keys.order).key(&keys.entries);
        call.arg(after).arg(most);
        let command = RunningCommand::new("list_tasks", CommandEffect::Reads);
        Ok(self.link.run_script(command, limit, &call).await?)
    }

    async fn write_entry(&self, change: &TaskListChange) -> Result<(), StoreError> {
        let mut call = LIST_TASK.prepare_invoke();
        call.key(&change.keys.order).key(&change.keys.entries);
        let (sealed, ttl) = match &change.entry {
            Some((sealed, ttl)) => (sealed.as_str(), *ttl),
            None => ("", Duration::ZERO),
        };
        call.arg(&change.field).arg(sealed).arg(expiry(ttl));
        call.arg(MAX_LISTED).arg(expiry(MAX_TTL));
        let command = RunningCommand::may_write("list_task");
        let written = self.link.run_script(command, BACKGROUND_TIMEOUT, &call);
        Ok(written.await?)
    }

    /// Sends the changes, those of one key in their order. It never ends.
    pub(crate) async fn keep_writing(&self) {
        let random = self.link.random();
        let mut backoff = STORE_BACKOFF;
        loop {
            let first = self.waiting.lock().take_first();
            let Some((number, change)) = first else {
                self.wake.notified().await;
                continue;
            };
            let is_written = self.write(&change).await.is_ok();
            let unwritten = (!is_written).then_some((number, change));
            self.waiting.lock().end_write(unwritten);
            self.publish_pending();
            if is_written {
                backoff.reset();
            } else {
                sleep(next_pause(&mut backoff, random)).await;
            }
        }
    }

    fn publish_pending(&self) {
        self.pending.update(|| {
            let waiting = self.waiting.lock();
            waiting.changes.len() + usize::from(waiting.writing.is_some())
        });
    }

    async fn write(&self, change: &TaskChange) -> Result<(), StoreError> {
        let mut command;
        match change {
            TaskChange::Kept { name, sealed, ttl } => {
                command = cmd("SET");
                command.arg(name).arg(sealed).arg("PX").arg(expiry(*ttl));
            }
            TaskChange::Removed { name } => {
                command = cmd("DEL");
                command.arg(name);
            }
            TaskChange::Listed(change) => return self.write_entry(change).await,
        }
        self.link
            .change("write_task", BACKGROUND_TIMEOUT, &command)
            .await
    }
}

impl WaitingChanges {
    fn add(&mut self, change: TaskChange) {
        self.last += 1;
        self.push(self.last, change);
    }

    fn push(&mut self, number: u64, change: TaskChange) {
        self.changes.push_back((number, change));
        if self.changes.len() > MAX_PENDING {
            self.changes.pop_front();
            let labels = [KeyValue::new("kind", "task")];
            instruments().store_dropped.add(1, &labels);
        }
    }

    fn take_first(&mut self) -> Option<(u64, TaskChange)> {
        let first = self.changes.pop_front();
        self.writing = first.as_ref().map(|(number, _)| *number);
        first
    }

    /// Ends a write. A change that could not be written waits behind the others, which may be
    /// written meanwhile. A later change of the same key makes it needless.
    fn end_write(&mut self, unwritten: Option<(u64, TaskChange)>) {
        self.writing = None;
        if let Some((number, change)) = unwritten {
            let is_later = |(_, later): &(u64, TaskChange)| later.target() == change.target();
            if !self.changes.iter().any(is_later) {
                self.push(number, change);
            }
        }
    }

    /// True if no change up to this number waits or is being written.
    fn are_written(&self, last: u64) -> bool {
        let waiting = self.changes.iter().map(|(number, _)| number);
        waiting.chain(&self.writing).all(|number| *number > last)
    }
}

/// Returns an expiry in milliseconds: Redis refuses one of none.
fn expiry(time: Duration) -> u64 {
    millis(time).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str, sealed: &str) -> TaskChange {
        TaskChange::Kept {
            name: name.to_owned(),
            sealed: sealed.to_owned(),
            ttl: MAX_TTL,
        }
    }

    fn waiting(changes: impl IntoIterator<Item = TaskChange>) -> WaitingChanges {
        let mut waiting = WaitingChanges::default();
        changes.into_iter().for_each(|change| waiting.add(change));
        waiting
    }

    #[test]
    fn failed_change_waits_behind_others_unless_a_later_one_replaces_it() {
        let mut waiting = waiting([kept("b", "1"), kept("c", "1")]);
        waiting.end_write(Some((0, kept("a", "1"))));
        waiting.end_write(Some((0, kept("c", "0"))));
        let removed = TaskChange::Removed { name: "a".into() };
        waiting.add(removed);
        waiting.end_write(Some((0, kept("a", "0"))));
        let changes = || waiting.changes.iter().map(|(_, change)| change);
        let targets: Vec<_> = changes().map(|change| change.target().0).collect();
        assert_eq!(targets, ["b", "c", "a", "a"]);
        let is_last = |change: &TaskChange| matches!(change, TaskChange::Removed { .. });
        assert!(changes().next_back().is_some_and(is_last));
    }

    #[test]
    fn list_waits_for_the_changes_before_it_alone() {
        let mut waiting = waiting([kept("a", "1"), kept("b", "1")]);
        let last = waiting.last;
        waiting.add(kept("c", "1"));
        assert!(waiting.take_first().is_some() && !waiting.are_written(last));
        waiting.end_write(None);
        let failed = waiting.take_first();
        assert!(failed.is_some() && !waiting.are_written(last));
        waiting.end_write(failed);
        assert!(!waiting.are_written(last), "it waits behind the others");
        for _ in 0..2 {
            assert!(waiting.take_first().is_some());
            waiting.end_write(None);
        }
        waiting.add(kept("d", "1"));
        assert!(waiting.are_written(last), "others wait");
    }
}
