//! Writes the replay logs of this replica to the shared store, behind the streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_core::instant::millis;
use weir_core::port::{StoreError, StreamKey};
use weir_core::telemetry::instruments;
use weir_store::{PendingCount, PendingSum};

use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink, RunningCommand};
use crate::replay_queue::{LogWrite, ReplayQueue};
use crate::replay_seal::{ReplayField, ReplaySeal};
use crate::scripts::WRITE_LOG;
use crate::write_rounds::{self, ROUND_SIZE, WriteRounds};

/// The write-behind of replay logs.
pub(crate) struct ReplayWriter {
    link: Arc<RedisLink>,
    seal: ReplaySeal,
    /// The milliseconds that a log lives after its last change.
    age_millis: AtomicU64,
    queue: Mutex<ReplayQueue>,
    /// Streams of the round that is being written.
    in_flight: AtomicUsize,
    wake: Notify,
    pending: PendingCount,
}

impl ReplayWriter {
    /// A writer of logs that live so long after their last change; [`Self::keep_writing`] sends them.
    pub(crate) fn new(
        link: Arc<RedisLink>,
        seal: ReplaySeal,
        age: Duration,
        sum: PendingSum,
    ) -> Self {
        let writer = Self {
            link,
            seal,
            age_millis: AtomicU64::new(0),
            queue: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            wake: Notify::new(),
            pending: PendingCount::new(sum),
        };
        writer.set_age(age);
        writer
    }

    /// Changes the time that logs live after their last change.
    pub(crate) fn set_age(&self, age: Duration) {
        self.age_millis.store(millis(age).max(1), Ordering::Relaxed);
    }

    /// The number of streams with changes that wait.
    pub(crate) fn pending(&self) -> &PendingCount {
        &self.pending
    }

    /// Begins a stream, with the event in place of an answer that is lost.
    pub(crate) fn begin(&self, key: StreamKey, lost_answer: Bytes) {
        let has_room = self.queue.lock().begin(key, lost_answer);
        self.note_change(has_room);
    }

    /// Has an event written soon.
    pub(crate) fn append(&self, key: StreamKey, seq: u64, event: Bytes) {
        let has_room = self.queue.lock().append(key, seq, event);
        self.note_change(has_room);
    }

    /// Has the end of a stream written soon.
    pub(crate) fn end(&self, key: StreamKey) {
        self.queue.lock().end(key);
        self.note_change(true);
    }

    fn note_change(&self, has_room: bool) {
        if !has_room {
            count_dropped();
        }
        self.publish_pending();
        self.wake.notify_one();
    }

    fn publish_pending(&self) {
        self.pending.update(|| {
            let queue = self.queue.lock();
            queue.len() + self.in_flight.load(Ordering::Relaxed)
        });
    }

    /// Reads a log from the shared store: its fields that can be opened.
    pub(crate) async fn read(
        &self,
        key: StreamKey,
    ) -> Result<Vec<(ReplayField, Bytes)>, StoreError> {
        let mut command = redis::cmd("HGETALL");
        command.arg(self.seal.shared_name(key));
        let limit = self.link.command_timeout();
        let rows: Vec<(String, String)> = self.link.query("read_log", limit, &command).await?;
        let open = |(name, text): (String, String)| {
            let field = ReplayField::of_name(&name)?;
            Some((field, self.seal.open(key, field, &text)?))
        };
        Ok(rows.into_iter().filter_map(open).collect())
    }

    /// Sends the queued changes. It never ends.
    pub(crate) async fn keep_writing(&self) {
        write_rounds::keep_writing(self, self.link.random()).await;
    }
}

impl WriteRounds for ReplayWriter {
    type Write = LogWrite;

    fn take_round(&self) -> Vec<LogWrite> {
        let mut queue = self.queue.lock();
        let round = queue.take(ROUND_SIZE);
        self.in_flight.store(round.len(), Ordering::Relaxed);
        round
    }

    async fn write(&self, write: &LogWrite) -> Result<(), StoreError> {
        let mut call = WRITE_LOG.prepare_invoke();
        call.key(self.seal.shared_name(write.key))
            .arg(self.age_millis.load(Ordering::Relaxed))
            .arg(write.values.len());
        for one in &write.values {
            call.arg(one.field.name())
                .arg(self.seal.seal(write.key, one.field, &one.value));
        }
        for seq in &write.removed {
            call.arg(ReplayField::Event(*seq).name());
        }
        let command = RunningCommand::may_write("write_log");
        let written = self.link.run_script(command, BACKGROUND_TIMEOUT, &call);
        Ok(written.await?)
    }

    fn end_round(&self, failed: Vec<LogWrite>) {
        for write in failed {
            if !self.queue.lock().put_back(write) {
                count_dropped();
            }
        }
        self.in_flight.store(0, Ordering::Relaxed);
        self.publish_pending();
    }

    async fn wait_queued(&self) {
        self.wake.notified().await;
    }
}

fn count_dropped() {
    instruments()
        .store_dropped
        .add(1, &[KeyValue::new("kind", "event")]);
}
