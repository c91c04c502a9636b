//! The writer thread of a chain: takes events in batches, makes records of them, and holds each
//! until it is kept.

mod left_path;
mod path_handover;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::record::{
    AuditChain, AuditEvent, AuditLifecycle, ChainHead, EventKeeper as _, RefusalCounter,
};
use opentelemetry::KeyValue;
use tokio::sync::oneshot;
use weir_core::port::Clock;
use weir_core::telemetry::instruments;

use crate::audit_plan::AuditPlan;
use crate::audit_service::audit_file::AuditFile;
use crate::audit_service::event_queue::{AuditEventQueue, AuditWriterMessage};
use crate::audit_service::file_tail::AuditFileTail;
use crate::audit_service::outlets::AuditOutlets;
use crate::audit_service::rotation;
use left_path::LeftPath;

/// The time that the writer waits after the first event for others, so that a busy weir wakes it
/// seldom.
const BATCH_WAIT: Duration = Duration::from_millis(10);
/// The most events of one write.
const BATCH: usize = 512;
/// The most records without a sync, however short the time was.
const UNSYNCED: usize = 1024;
/// The time between two attempts after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The interval between log lines about a lasting failure.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// The part of a file that refused calls and refused clients can fill. Further ones go to the file
/// of refusals, so that they displace no record of a call.
const DENIED_PART: u64 = 4;
/// The interval at which rotated files are checked for their age.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// The name of the chain of refusals.
const REFUSALS: &str = "refusals";

/// The orders to the writer, beside events.
#[derive(Debug, Default)]
pub(super) struct WriterOrders {
    pub(super) change: Option<WriterChange>,
    /// Set when another process takes over this path: the file is renamed, and later events here
    /// are a branch in it. The reply is the record after which the other process continues.
    pub(super) aside: Option<oneshot::Sender<ChainHead>>,
    /// Set when the process that was to take over has failed: this one returns to the path.
    pub(super) take_back: bool,
    /// Set when the previous process has ended, with its last record if it sent one.
    pub(super) ended_before: Option<Option<ChainHead>>,
    /// Set by the writer at its end: the last record that it kept.
    pub(super) last: Option<ChainHead>,
    pub(super) stop: bool,
}

/// New settings.
#[derive(Debug)]
pub(super) struct WriterChange {
    pub(super) plan: AuditPlan,
    /// Another file to write to, if it changes.
    pub(super) place: Option<OpenedAuditFile>,
    /// Other outlets, if they change.
    pub(super) outlets: Option<AuditOutlets>,
}

impl WriterChange {
    /// Merges an earlier change that the writer has not applied. Files and outlets that this one
    /// leaves unchanged were opened for the earlier one.
    pub(super) fn after(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before {
            self.place = self.place.or(before.place);
            self.outlets = self.outlets.or(before.outlets);
        }
        self
    }
}

/// The kind of chain that a writer writes.
#[derive(Debug)]
pub(super) enum ChainRole {
    /// The calls. Denials beyond their part of the file go to this queue.
    Calls { overflow: Arc<AuditEventQueue> },
    /// The refusals, and the counts of those that are only counted.
    Refusals { counter: Arc<RefusalCounter> },
}

impl ChainRole {
    fn chain(&self) -> Option<&'static str> {
        match self {
            Self::Calls { .. } => None,
            Self::Refusals { .. } => Some(REFUSALS),
        }
    }

    /// Returns the name of the writer's thread.
    pub(super) fn thread(&self) -> &'static str {
        match self {
            Self::Calls { .. } => "audit",
            Self::Refusals { .. } => "audit-refusals",
        }
    }
}

/// The file of records with its end; `None` if records go to the outlets alone.
pub(super) type OpenedAuditFile = Option<(AuditFile, AuditFileTail)>;

/// The settings of a writer at its start.
pub(super) struct WriterSettings {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) plan: AuditPlan,
    pub(super) outlets: AuditOutlets,
}

/// The end of a chain that a writer continues.
pub(super) struct ChainOrigin {
    pub(super) file: OpenedAuditFile,
    /// The last record of the previous process. It counts if the file is empty.
    pub(super) last: Option<ChainHead>,
}

/// The state of the thread.
pub(super) struct AuditWriter {
    queue: Arc<AuditEventQueue>,
    orders: Arc<Mutex<WriterOrders>>,
    role: ChainRole,
    clock: Arc<dyn Clock>,
    plan: AuditPlan,
    journal: Option<AuditFile>,
    chain: AuditChain,
    outlets: AuditOutlets,
    /// The number of records since the last sync; the next field is the time of the oldest of them.
    unsynced: usize,
    waiting_since: Option<Instant>,
    failing_since: Option<Instant>,
    logged_at: Option<Instant>,
    ages_checked_at: Option<Instant>,
    /// The length at which the file is rotated. It grows after a failed rotation, so that the next
    /// attempt is later.
    rotate_at: u64,
    /// The bytes of the file that are denials.
    denied: u64,
    /// Present from the order to leave the path to another process until this one has it back.
    left: Option<LeftPath>,
}

impl AuditWriter {
    /// Returns a writer that continues at the end of the origin's file; in an empty one after the
    /// last record of the previous process.
    pub(super) fn new(
        queue: Arc<AuditEventQueue>,
        orders: Arc<Mutex<WriterOrders>>,
        role: ChainRole,
        settings: WriterSettings,
        origin: ChainOrigin,
    ) -> Self {
        let WriterSettings {
            clock,
            plan,
            outlets,
        } = settings;
        let (journal, tail) = origin.file.unzip();
        let mut tail = tail.unwrap_or_else(AuditFileTail::empty);
        if tail == AuditFileTail::empty() {
            tail.head = origin.last.unwrap_or(tail.head);
        }
        let chain = AuditChain::after(tail.head.clone(), plan.key.clone()).named(role.chain());
        let rotate_at = plan.file.as_ref().map_or(u64::MAX, |file| file.size);
        let mut writer = Self {
            queue,
            orders,
            role,
            clock,
            plan,
            journal,
            chain,
            outlets,
            unsynced: 0,
            waiting_since: None,
            failing_since: None,
            logged_at: None,
            ages_checked_at: None,
            rotate_at,
            denied: 0,
            left: None,
        };
        writer.record_recovery(tail.torn);
        writer.record_life(AuditLifecycle::Started {
            version: env!("CARGO_PKG_VERSION"),
            unclean: !tail.clean,
        });
        writer
    }

    /// Writes until it is ordered to stop or every sender is dropped. Signals `begun` when the
    /// first record is kept.
    pub(super) fn run(
        mut self,
        receiver: &Receiver<AuditWriterMessage>,
        begun: oneshot::Sender<()>,
    ) {
        // However this function ends, records are not kept from then on.
        let _ended = WriterEndGuard(self.queue.clone());
        if self.save(true) {
            // The receiver may be dropped.
            let _ = begun.send(());
            self.rotate_and_clean();
        }
        loop {
            let first = match receiver.recv_timeout(self.time_to_next_action()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.finish(receiver),
            };
            if matches!(first, Some(AuditWriterMessage::Event(_))) {
                std::thread::park_timeout(BATCH_WAIT);
            }
            self.take(first);
            for message in receiver.try_iter().take(BATCH) {
                self.take(Some(message));
            }
            // After all messages: an order is given before the message that wakes.
            if self.follow_orders() {
                return self.finish(receiver);
            }
            self.lost();
            self.count(false);
            if !self.save(false) {
                return self.finish(receiver);
            }
            self.measure();
            self.rotate_and_clean();
        }
    }

    /// Returns the time until the writer must act without a new event.
    fn time_to_next_action(&self) -> Duration {
        let own = match self.waiting_since {
            Some(since) => self
                .plan
                .sync
                .saturating_sub(since.elapsed())
                .max(Duration::from_millis(1)),
            None => match &self.role {
                ChainRole::Calls { .. } => AGE_CHECK_INTERVAL,
                ChainRole::Refusals { counter } => counter.until_minute_ends(),
            },
        };
        own.min(self.time_to_return())
    }

    fn measure(&self) {
        if let ChainRole::Calls { .. } = self.role {
            instruments()
                .audit_queue
                .record(self.queue.waiting() as u64, &[]);
        }
    }

    /// Records the counted refusals of the minutes that have ended, and with `open` of the current
    /// one.
    fn count(&mut self, open: bool) {
        if let ChainRole::Refusals { counter } = &self.role {
            for event in counter.take(open) {
                self.record(&event);
            }
        }
    }

    fn take(&mut self, message: Option<AuditWriterMessage>) {
        if let Some(AuditWriterMessage::Event(event)) = message {
            self.queue.taken();
            match &self.role {
                ChainRole::Calls { overflow } if event.is_denial() && self.is_full_of_denials() => {
                    // If the other queue is full, it counts the loss.
                    let _ = overflow.keep(event);
                }
                ChainRole::Calls { .. } | ChainRole::Refusals { .. } => self.record(&event),
            }
        }
    }

    fn is_full_of_denials(&self) -> bool {
        let part = self
            .plan
            .file
            .as_ref()
            .map_or(u64::MAX, |file| file.size / DENIED_PART);
        self.denied >= part && self.journal.as_ref().is_some_and(AuditFile::is_regular)
    }

    /// Accounts for the bytes after the last record of a file, if there are some.
    fn record_recovery(&mut self, torn: Option<AuditLifecycle>) {
        if let Some(torn) = torn {
            tracing::warn!(?torn, "audit file torn by a crash, recovered");
            self.record_life(torn);
        }
    }

    fn record_life(&mut self, life: AuditLifecycle) {
        self.record(&AuditEvent::life(self.clock.wall(), life));
    }

    fn record(&mut self, event: &AuditEvent) {
        let sealed = self.chain.seal(event);
        instruments()
            .audit_records
            .add(1, &[KeyValue::new("kind", sealed.kind)]);
        if let Some(journal) = &mut self.journal {
            journal.push(sealed.line.as_bytes());
            self.denied += if event.is_denial() {
                sealed.line.len() as u64
            } else {
                0
            };
            self.unsynced += 1;
            self.waiting_since.get_or_insert_with(Instant::now);
        }
        self.outlets.offer(sealed);
    }

    /// Records the number of dropped events.
    fn lost(&mut self) {
        let events = self.queue.take_lost();
        if events > 0 {
            self.record_life(AuditLifecycle::Lost { events });
        }
    }

    /// Writes all pending records, and syncs them if it is time or `now` is set. Retries until it
    /// succeeds. Returns false if it was ordered to stop before.
    fn save(&mut self, now: bool) -> bool {
        loop {
            let done = self.attempt(now);
            let well = done.is_ok();
            let was_well = self.queue.set_healthy(well);
            let Err(error) = done else {
                if let Some(since) = self.failing_since.take() {
                    self.logged_at = None;
                    tracing::info!(seconds = since.elapsed().as_secs(), "audit write recovered");
                }
                return true;
            };
            self.failing_since.get_or_insert_with(Instant::now);
            if was_well
                || self
                    .logged_at
                    .is_none_or(|said| said.elapsed() > LOG_INTERVAL)
            {
                self.logged_at = Some(Instant::now());
                let path = self
                    .journal
                    .as_ref()
                    .map(|journal| journal.path().display().to_string());
                let calls = if self.plan.closed {
                    "refused"
                } else {
                    "served"
                };
                tracing::error!(path, %error, calls, "audit write failed");
            }
            self.measure();
            std::thread::park_timeout(RETRY_INTERVAL);
            if self.follow_orders() {
                return false;
            }
        }
    }

    fn attempt(&mut self, now: bool) -> std::io::Result<()> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        self.queue.run_timed(|| journal.flush())?;
        if !journal.has_unsynced() {
            (self.unsynced, self.waiting_since) = (0, None);
            return Ok(());
        }
        let waited = self
            .waiting_since
            .is_some_and(|since| since.elapsed() >= self.plan.sync);
        if now || waited || self.unsynced >= UNSYNCED {
            let begun = Instant::now();
            self.queue.run_timed(|| journal.sync())?;
            instruments()
                .audit_sync
                .record(begun.elapsed().as_secs_f64(), &[]);
            (self.unsynced, self.waiting_since) = (0, None);
        }
        Ok(())
    }

    /// Follows orders. Returns true for the order to stop.
    fn follow_orders(&mut self) -> bool {
        let (change, aside, take_back, ended_before, stop) = {
            let mut orders = self.orders.lock();
            (
                orders.change.take(),
                orders.aside.take(),
                std::mem::take(&mut orders.take_back),
                orders.ended_before.take(),
                orders.stop,
            )
        };
        if let Some(last) = ended_before {
            self.record_life(AuditLifecycle::Predecessor { last });
        }
        if let Some(change) = change {
            self.change(change);
        }
        if let Some(done) = aside {
            let left = self.step_aside();
            // The receiver may be dropped.
            let _ = done.send(left);
        }
        if take_back {
            self.begin_return();
        }
        self.take_path_back();
        stop
    }

    fn change(
        &mut self,
        WriterChange {
            plan,
            place,
            outlets,
        }: WriterChange,
    ) {
        if plan != self.plan || place.is_some() || outlets.is_some() {
            self.record_life(AuditLifecycle::Changed);
        }
        // If this fails, the new file gets the records that the old one lacks.
        let kept = self.attempt(true);
        let place = place.or_else(|| self.found_moved(&plan));
        if let Some(place) = place {
            self.left = None;
            let (journal, tail) = place.unzip();
            let rest = std::mem::replace(&mut self.journal, journal)
                .map(AuditFile::abandon)
                .unwrap_or_default();
            if let Err(error) = kept {
                tracing::warn!(%error, bytes = rest.len(), "audit write failed, unwritten records moved to the new file");
            }
            self.denied = 0;
            self.settle(&tail.unwrap_or_else(AuditFileTail::empty), &rest);
        }
        if plan.key != self.plan.key {
            self.chain = AuditChain::after(self.chain.head().clone(), plan.key.clone())
                .named(self.role.chain());
        }
        self.rotate_at = plan.file.as_ref().map_or(u64::MAX, |file| file.size);
        self.plan = plan;
        if let Some(outlets) = outlets {
            self.outlets = outlets;
        }
    }

    /// Opens a new file if the present one was moved away.
    fn found_moved(&self, plan: &AuditPlan) -> Option<OpenedAuditFile> {
        let journal = self
            .journal
            .as_ref()
            .filter(|journal| journal.is_regular() && journal.is_moved())?;
        let keys: Vec<_> = plan.key.iter().cloned().collect();
        match AuditFile::open(journal.path(), &keys) {
            Ok(place) => Some(Some(place)),
            Err(error) => {
                tracing::error!(path = %journal.path().display(), %error, "audit file moved away, new file not opened");
                None
            }
        }
    }

    /// Continues in a file that may hold another chain: that file is rotated first.
    fn settle(&mut self, tail: &AuditFileTail, rest: &[u8]) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        if journal.is_regular()
            && journal.length() > 0
            && (tail.torn.is_some() || tail.head != *self.chain.head())
        {
            let name = rotation::rotated_name(journal.path(), tail.head.seq);
            if let Err(error) = journal.rotate(&name) {
                tracing::error!(%error, "audit file rotation failed: two chains in one file");
            }
        }
        journal.push(rest);
        self.waiting_since = (!rest.is_empty()).then(Instant::now);
    }

    /// Rotates a full file, and removes old ones. While another process has the path, the files are
    /// that one's to rotate and to remove.
    fn rotate_and_clean(&mut self) {
        let (Some(file), Some(journal), None) = (&self.plan.file, &mut self.journal, &self.left)
        else {
            return;
        };
        let full = journal.is_regular() && journal.length() >= self.rotate_at;
        if full {
            let name = rotation::rotated_name(journal.path(), self.chain.head().seq);
            let put = self
                .queue
                .run_timed(|| journal.sync().and_then(|()| journal.rotate(&name)));
            if let Err(error) = put {
                tracing::error!(%error, "audit file rotation failed: file keeps growing");
                self.rotate_at = journal.length() + file.size;
            } else {
                (self.rotate_at, self.denied) = (file.size, 0);
                (self.unsynced, self.waiting_since) = (0, None);
            }
        }
        if full
            || self
                .ages_checked_at
                .is_none_or(|looked| looked.elapsed() >= AGE_CHECK_INTERVAL)
        {
            self.ages_checked_at = Some(Instant::now());
            rotation::remove_old(&file.path, file.keep, file.keep_for, SystemTime::now());
        }
    }

    /// Writes the pending records and the record of the end.
    fn finish(mut self, receiver: &Receiver<AuditWriterMessage>) {
        for message in receiver.try_iter() {
            self.take(Some(message));
        }
        self.lost();
        self.count(true);
        self.record_life(AuditLifecycle::Stopped);
        if let Err(error) = self.attempt(true) {
            let records = self.unsynced;
            tracing::error!(%error, records, "audit records lost at shutdown: write failed");
            return;
        }
        self.orders.lock().last = Some(self.chain.head().clone());
    }
}

/// A guard that marks the end of the thread in the queue. Only a panic is a failure.
struct WriterEndGuard(Arc<AuditEventQueue>);

impl Drop for WriterEndGuard {
    fn drop(&mut self) {
        self.0.set_ended(std::thread::panicking());
    }
}
