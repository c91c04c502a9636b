//! Writes records of this replica to the shared store, behind the requests that changed them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use weir_core::port::{Clock, RecordKey, RecordStore, StoreError, full_jitter};
use weir_core::telemetry::instruments;
use weir_store::{PendingCount, PendingSum};

use crate::record_commands::{EndOutcome, RecordCommands, SaveOutcome};
use crate::record_notices::RecordNotices;
use crate::record_seal::{RecordName, record_name};
use crate::redis_link::BACKGROUND_TIMEOUT;
use crate::write_queue::{PendingWrite, RecordEnd, WriteQueue};
use crate::write_rounds::{self, ROUND_SIZE, WriteRounds};
use crate::write_times::WriteTimes;

/// The most records with a write that waits.
const MAX_PENDING: usize = 100_000;
/// Replicas begin to write all their records again within this time.
const REWRITE_SPREAD: Duration = Duration::from_secs(1);
/// Replicas begin to look at all their records after a gap within this time. With two intervals of
/// heartbeats, by which a gap is noticed, it stays below the hard age of a copy: 5 s.
const LOOK_SPREAD: Duration = Duration::from_millis(500);
/// The longest sleep of the writer beside a write that it was not woken for.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// Ended records that are remembered here.
const MAX_ENDED: usize = 65_536;
/// Ends that are written again to a server that may lack the last writes.
const MAX_REPEATED_ENDS: usize = 10_000;
/// Lost records that wait for [`RecordStore::lost`].
const MAX_LOST: usize = 100_000;

/// The write-behind of one store of records.
pub(crate) struct RecordWriter {
    commands: RecordCommands,
    notices: RecordNotices,
    local: Arc<dyn RecordStore>,
    state: Mutex<WriterState>,
    wake: Notify,
    pending: PendingCount,
    times: WriteTimes,
    ended: Cache<RecordName, ()>,
    /// The last ends that the shared store confirmed, oldest first.
    written_ends: Mutex<VecDeque<RecordKey>>,
    lost: Mutex<VecDeque<RecordKey>>,
}

struct WriterState {
    queue: WriteQueue,
    /// Records that are written again, after the queue.
    again: Vec<RecordKey>,
    in_flight: Vec<(RecordKey, PendingWrite)>,
}

impl RecordWriter {
    /// A writer without writes; [`Self::keep_writing`] sends them.
    pub(crate) fn new(
        commands: RecordCommands,
        notices: RecordNotices,
        local: Arc<dyn RecordStore>,
        clock: Arc<dyn Clock>,
        sum: PendingSum,
    ) -> Self {
        Self {
            commands,
            notices,
            local,
            state: Mutex::new(WriterState {
                queue: WriteQueue::new(MAX_PENDING),
                again: Vec::new(),
                in_flight: Vec::new(),
            }),
            wake: Notify::new(),
            pending: PendingCount::new(sum),
            times: WriteTimes::new(clock),
            ended: Cache::new(MAX_ENDED),
            written_ends: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// The commands for records.
    pub(crate) fn commands(&self) -> &RecordCommands {
        &self.commands
    }

    /// The notices to the other replicas.
    pub(crate) fn notices(&self) -> &RecordNotices {
        &self.notices
    }

    /// The number of writes that wait.
    pub(crate) fn pending(&self) -> usize {
        self.pending.get()
    }

    /// Has the time to live of a record written if that was last done a quarter of it ago.
    pub(crate) fn touch(&self, key: &RecordKey, ttl: Duration) {
        if self.times.is_due(key, ttl) {
            self.save_later(key, ttl);
        }
    }

    /// Has a record written soon.
    pub(crate) fn save_later(&self, key: &RecordKey, ttl: Duration) {
        self.queue(key, PendingWrite::Save(ttl));
        self.wake.notify_one();
    }

    /// Writes a new record now, or else soon.
    pub(crate) async fn save_now(&self, key: &RecordKey, value: &[u8], ttl: Duration) {
        // It is queued first, so that a request that is given up leaves a write behind.
        self.queue(key, PendingWrite::Save(ttl));
        let limit = self.commands.request_limit();
        match self.save(key, value, ttl, limit).await {
            Ok(()) => {
                self.state.lock().queue.remove_save(key);
                self.publish_pending();
            }
            Err(_) => self.wake.notify_one(),
        }
    }

    /// Ends a record now, or else soon; true if the shared store had it.
    pub(crate) async fn end_now(&self, key: &RecordKey, end: RecordEnd) -> bool {
        self.ended.insert(record_name(key), ());
        self.queue(key, PendingWrite::End(end));
        let limit = self.commands.request_limit();
        match self.commands.end(key, end, limit).await {
            Ok(outcome) => {
                self.state.lock().queue.remove_end(key);
                self.publish_pending();
                if outcome == EndOutcome::Ended {
                    self.confirm_end(key);
                }
                outcome == EndOutcome::Ended
            }
            Err(_) => {
                self.wake.notify_one();
                false
            }
        }
    }

    /// Has the other replicas drop the record, and its end written again to another server.
    fn confirm_end(&self, key: &RecordKey) {
        self.notices.send(key);
        let mut ends = self.written_ends.lock();
        if ends.len() >= MAX_REPEATED_ENDS {
            ends.pop_front();
        }
        ends.push_back(key.clone());
    }

    /// Has the end of an expired record written soon. It is not remembered as ended before that:
    /// another replica may have taken it over.
    pub(crate) fn end_later(&self, key: &RecordKey) {
        self.queue(key, PendingWrite::End(RecordEnd::Expired));
        self.wake.notify_one();
    }

    /// Takes note that a record has ended.
    pub(crate) fn note_ended(&self, key: &RecordKey) {
        self.ended.insert(record_name(key), ());
    }

    /// Reports if a record ended a while ago, as far as it is remembered here. For one that expired
    /// here, and whose end waits, the store is asked: another replica may have taken it over while
    /// this one was paused.
    pub(crate) async fn has_ended(&self, key: &RecordKey) -> Result<bool, StoreError> {
        if self.ended.get(&record_name(key)).is_some() {
            return Ok(true);
        }
        match self.waiting(key) {
            Some(PendingWrite::End(RecordEnd::Expired)) => {}
            other => return Ok(matches!(other, Some(PendingWrite::End(_)))),
        }
        let limit = self.commands.request_limit();
        let outcome = self.end(key, RecordEnd::Expired, limit).await?;
        self.state.lock().queue.remove_end(key);
        self.publish_pending();
        Ok(outcome != EndOutcome::OwnedElsewhere)
    }

    /// The write of a record that the shared store has not confirmed yet.
    fn waiting(&self, key: &RecordKey) -> Option<PendingWrite> {
        let state = self.state.lock();
        let in_flight = || state.in_flight.iter().find(|(known, _)| known == key);
        let queued = state.queue.get(key);
        queued.or_else(|| in_flight().map(|(_, write)| *write))
    }

    /// Takes the records that other replicas took over.
    pub(crate) fn take_lost(&self) -> Vec<RecordKey> {
        std::mem::take(&mut *self.lost.lock()).into()
    }

    /// Waits until all writes are done; returns the number of those left at the time limit.
    pub(crate) async fn flush(&self, limit: Duration) -> usize {
        self.wake.notify_one();
        self.pending.wait_for_zero(limit).await
    }

    /// Sends the queued writes. It never ends.
    pub(crate) async fn keep_writing(&self) {
        let random = self.commands.link().random();
        write_rounds::keep_writing(self, random).await;
    }

    /// Has all records and the last ends written again, each time that `rewrites` changes: the server
    /// may lack the last writes.
    pub(crate) async fn keep_rewriting(&self, mut rewrites: watch::Receiver<u64>) {
        while self.wait_for_rewrite(&mut rewrites, REWRITE_SPREAD).await {
            for key in std::mem::take(&mut *self.written_ends.lock()) {
                self.queue(&key, PendingWrite::End(RecordEnd::Removed));
            }
            self.wake.notify_one();
            self.write_all_again();
        }
    }

    /// Has all records written again, each time that `gaps` changes: notices of other replicas were
    /// missed.
    pub(crate) async fn keep_looking(&self, mut gaps: watch::Receiver<u64>) {
        while self.wait_for_rewrite(&mut gaps, LOOK_SPREAD).await {
            self.write_all_again();
        }
    }

    /// Waits for the next change, and a time up to `spread` that differs between replicas; false
    /// without further ones.
    async fn wait_for_rewrite(&self, due: &mut watch::Receiver<u64>, spread: Duration) -> bool {
        let is_due = due.changed().await.is_ok();
        if is_due {
            let random = self.commands.link().random();
            sleep(full_jitter(spread, random)).await;
        }
        is_due
    }

    /// Has all records written again.
    pub(crate) fn write_all_again(&self) {
        self.state.lock().again.clear();
        self.write_again(|_| true);
    }

    /// Has the records that are wanted written again. One that another replica owns, or that has
    /// ended, is dropped then.
    pub(crate) fn write_again(&self, is_wanted: impl Fn(&RecordKey) -> bool) {
        let mut again = Vec::new();
        self.local.visit(&mut |key, _| {
            if is_wanted(key) {
                again.push(key.clone());
            }
        });
        if again.is_empty() {
            return;
        }
        self.state.lock().again.append(&mut again);
        self.publish_pending();
        self.wake.notify_one();
    }

    /// Writes the end of a record that waited.
    async fn end(
        &self,
        key: &RecordKey,
        end: RecordEnd,
        limit: Duration,
    ) -> Result<EndOutcome, StoreError> {
        let outcome = self.commands.end(key, end, limit).await?;
        if outcome != EndOutcome::OwnedElsewhere {
            self.note_ended(key);
        }
        if outcome == EndOutcome::Ended || end == RecordEnd::Removed {
            self.confirm_end(key);
        }
        Ok(outcome)
    }

    async fn save(
        &self,
        key: &RecordKey,
        value: &[u8],
        ttl: Duration,
        limit: Duration,
    ) -> Result<(), StoreError> {
        match self.commands.save(key, value, ttl, limit).await? {
            SaveOutcome::Saved => {
                self.times.note(key, ttl);
                Ok(())
            }
            SaveOutcome::Lost(owner) => self.lose(key, owner.is_none()).await,
        }
    }

    /// Drops a record of another replica, or one that has ended.
    async fn lose(&self, key: &RecordKey, has_ended: bool) -> Result<(), StoreError> {
        if has_ended {
            self.note_ended(key);
        }
        self.times.forget(key);
        if self.local.remove(key).await? {
            instruments().store_lost.add(1, &[]);
            tracing::debug!("session was taken over by another replica");
            let mut lost = self.lost.lock();
            if lost.len() >= MAX_LOST {
                lost.pop_front();
            }
            lost.push_back(key.clone());
        }
        Ok(())
    }

    fn queue(&self, key: &RecordKey, write: PendingWrite) {
        if let PendingWrite::Save(ttl) = write {
            self.times.note(key, ttl);
        }
        let dropped = self.state.lock().queue.push(key.clone(), write);
        if let Some(dropped) = dropped {
            // Its next use queues it again.
            self.times.forget(&dropped);
            let labels = [KeyValue::new("kind", "write")];
            instruments().store_dropped.add(1, &labels);
        }
        self.publish_pending();
    }

    fn publish_pending(&self) {
        self.pending.update(|| {
            let state = self.state.lock();
            state.queue.len() + state.again.len() + state.in_flight.len()
        });
    }
}

impl WriteRounds for RecordWriter {
    type Write = (RecordKey, PendingWrite);

    fn take_round(&self) -> Vec<Self::Write> {
        let mut state = self.state.lock();
        let mut round = state.queue.take(ROUND_SIZE);
        let room = ROUND_SIZE - round.len();
        let at = state.again.len().saturating_sub(room);
        let again = state.again.split_off(at);
        let is_new = |key: &RecordKey| round.iter().all(|(known, _)| known != key);
        let again: Vec<_> = again.into_iter().filter(is_new).collect();
        round.extend(again.into_iter().map(|key| {
            let write = PendingWrite::Save(self.times.ttl(&key));
            (key, write)
        }));
        state.in_flight.clone_from(&round);
        if round.is_empty() {
            // The last writes that failed may have been repeated by requests.
            self.commands.link().status().note_round(false);
        }
        round
    }

    async fn write(&self, (key, write): &Self::Write) -> Result<(), StoreError> {
        match *write {
            PendingWrite::Save(ttl) => match self.local.load(key, None).await? {
                Some(record) => self.save(key, &record.value, ttl, BACKGROUND_TIMEOUT).await,
                None => Ok(()),
            },
            PendingWrite::End(end) => self.end(key, end, BACKGROUND_TIMEOUT).await.map(drop),
        }
    }

    fn end_round(&self, failed: Vec<Self::Write>) {
        let status = self.commands.link().status();
        status.note_round(!failed.is_empty());
        for (key, write) in failed {
            self.queue(&key, write);
        }
        self.state.lock().in_flight.clear();
        self.publish_pending();
    }

    async fn wait_queued(&self) {
        // A write may have been queued without a wake-up.
        let _ = timeout(IDLE_LOOK, self.wake.notified()).await;
    }
}
