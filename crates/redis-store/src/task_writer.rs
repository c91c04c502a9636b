//! Writes the kept tasks of this replica to the shared store, behind the requests about them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::KeyValue;
use redis::cmd;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};
use weir_core::port::StoreError;
use weir_core::telemetry::instruments;

use crate::jitter::Backoff;
use crate::locking::lock;
use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink};

/// The most changes that wait. The oldest gives way.
const MAX_PENDING: usize = 2_000;
/// The pause after a failed change.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A change of a task on its way to the shared store.
#[derive(Debug)]
pub(crate) struct TaskChange {
    /// The name of the key.
    pub(crate) name: String,
    pub(crate) value: TaskValue,
}

/// The value of a task in the shared store.
#[derive(Debug)]
pub(crate) enum TaskValue {
    /// The sealed task, for a time.
    Kept { sealed: String, ttl: Duration },
    /// None any more.
    Removed,
}

/// The write-behind of kept tasks.
pub(crate) struct TaskWriter {
    link: Arc<RedisLink>,
    waiting: Mutex<VecDeque<TaskChange>>,
    wake: Notify,
    pending: watch::Sender<usize>,
}

impl TaskWriter {
    /// A writer without changes; [`Self::keep_writing`] sends them.
    pub(crate) fn new(link: Arc<RedisLink>) -> Self {
        Self {
            link,
            waiting: Mutex::default(),
            wake: Notify::new(),
            pending: watch::Sender::new(0),
        }
    }

    /// The number of changes that wait.
    pub(crate) fn pending(&self) -> usize {
        *self.pending.borrow()
    }

    /// Has a change written soon.
    pub(crate) fn write_later(&self, change: TaskChange) {
        let mut waiting = lock(&self.waiting);
        waiting.push_back(change);
        if waiting.len() > MAX_PENDING {
            waiting.pop_front();
            let labels = [KeyValue::new("kind", "task")];
            instruments().store_dropped.add(1, &labels);
        }
        self.pending.send_replace(waiting.len());
        drop(waiting);
        self.wake.notify_one();
    }

    /// Reads a sealed task.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut command = cmd("GET");
        command.arg(name);
        let limit = self.link.command_timeout();
        self.link.query("read_task", limit, &command).await
    }

    /// Waits until all changes are written; returns the number of those left at the time limit.
    pub(crate) async fn flush(&self, limit: Duration) -> usize {
        let mut pending = self.pending.subscribe();
        let until = Instant::now() + limit;
        let _ = timeout_at(until, pending.wait_for(|left| *left == 0)).await;
        self.pending()
    }

    /// Sends the changes in order. It never ends.
    pub(crate) async fn keep_writing(&self) {
        let random = self.link.random().clone();
        let mut backoff = Backoff::new(random, FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let first = lock(&self.waiting).pop_front();
            let Some(change) = first else {
                self.wake.notified().await;
                continue;
            };
            if self.write(&change).await.is_ok() {
                backoff.reset();
                self.pending.send_replace(lock(&self.waiting).len());
            } else {
                lock(&self.waiting).push_front(change);
                sleep(backoff.next_wait()).await;
            }
        }
    }

    async fn write(&self, change: &TaskChange) -> Result<(), StoreError> {
        let mut command;
        match &change.value {
            TaskValue::Kept { sealed, ttl } => {
                command = cmd("SET");
                let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                command
                    .arg(&change.name)
                    .arg(sealed)
                    .arg("PX")
                    .arg(millis.max(1));
            }
            TaskValue::Removed => {
                command = cmd("DEL");
                command.arg(&change.name);
            }
        }
        self.link
            .query("write_task", BACKGROUND_TIMEOUT, &command)
            .await
    }
}
