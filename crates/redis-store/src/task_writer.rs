//! Writes the kept tasks of this replica to the shared store, behind the requests about them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    waiting: Mutex<VecDeque<TaskChange>>,
    /// True while a change is being written.
    is_writing: AtomicBool,
    wake: Notify,
    pending: PendingCount,
}

impl TaskWriter {
    /// A writer without changes; [`Self::keep_writing`] sends them.
    pub(crate) fn new(link: Arc<RedisLink>, sum: PendingSum) -> Self {
        Self {
            link,
            waiting: Mutex::default(),
            is_writing: AtomicBool::new(false),
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
        push(&mut self.waiting.lock(), change);
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
    /// this replica that wait are written first, within the time limit of a request.
    pub(crate) async fn read_list(
        &self,
        keys: &TaskListKeys,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, String)>, StoreError> {
        let limit = self.link.command_timeout();
        self.pending.wait_for_zero(limit).await;
        let mut call = READ_TASKS.prepare_invoke();
        call.key(&keys.order).key(&keys.entries);
        call.arg(after).arg(most);
        let command = RunningCommand {
            operation: "list_tasks",
            effect: CommandEffect::Reads,
        };
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
            let Some(change) = self.take_first() else {
                self.wake.notified().await;
                continue;
            };
            let is_written = self.write(&change).await.is_ok();
            if !is_written {
                put_back(&mut self.waiting.lock(), change);
            }
            self.is_writing.store(false, Ordering::Relaxed);
            self.publish_pending();
            if is_written {
                backoff.reset();
            } else {
                sleep(next_pause(&mut backoff, random)).await;
            }
        }
    }

    fn take_first(&self) -> Option<TaskChange> {
        let mut waiting = self.waiting.lock();
        let first = waiting.pop_front();
        self.is_writing.store(first.is_some(), Ordering::Relaxed);
        first
    }

    fn publish_pending(&self) {
        self.pending.update(|| {
            let waiting = self.waiting.lock();
            waiting.len() + usize::from(self.is_writing.load(Ordering::Relaxed))
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

fn push(waiting: &mut VecDeque<TaskChange>, change: TaskChange) {
    waiting.push_back(change);
    if waiting.len() > MAX_PENDING {
        waiting.pop_front();
        let labels = [KeyValue::new("kind", "task")];
        instruments().store_dropped.add(1, &labels);
    }
}

/// Has a change that could not be written wait behind the others, which may be written meanwhile. A
/// later change of the same key makes it needless.
fn put_back(waiting: &mut VecDeque<TaskChange>, change: TaskChange) {
    let is_later = |later: &TaskChange| later.target() == change.target();
    if !waiting.iter().any(is_later) {
        push(waiting, change);
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

    #[test]
    fn failed_change_waits_behind_others_unless_a_later_one_replaces_it() {
        let mut waiting = VecDeque::from([kept("b", "1"), kept("c", "1")]);
        put_back(&mut waiting, kept("a", "1"));
        put_back(&mut waiting, kept("c", "0"));
        let removed = TaskChange::Removed { name: "a".into() };
        push(&mut waiting, removed);
        put_back(&mut waiting, kept("a", "0"));
        let targets: Vec<_> = waiting.iter().map(|change| change.target().0).collect();
        assert_eq!(targets, ["b", "c", "a", "a"]);
        let is_last = |change: &TaskChange| matches!(change, TaskChange::Removed { .. });
        assert!(waiting.back().is_some_and(is_last));
    }
}
