//! The writer thread of a chain: takes events in batches, makes records of them, and holds each
//! until it is kept.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::KeyValue;
use tokio::sync::oneshot;
use weir_core::port::Clock;
use weir_core::telemetry::instruments;
use weir_policy::audit::{
    AuditChain, AuditEvent, AuditLifecycle, ChainHead, EventKeeper as _, RefusalCounter,
};

use super::journal::Journal;
use super::outlet::Outlets;
use super::queue::{Message, Queue};
use super::shelf;
use super::tail::Tail;
use crate::config::AuditPlan;

/// The time that the writer waits after the first event for others, so that a busy weir wakes it
/// seldom.
const GATHER: Duration = Duration::from_millis(10);
/// The most events of one write.
const BATCH: usize = 512;
/// The most records without a sync, however short the time was.
const UNSYNCED: usize = 1024;
/// The time between two attempts after a failed write.
const AGAIN: Duration = Duration::from_millis(250);
/// The interval between log lines about a lasting failure.
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// The part of a file that refused calls and refused clients can fill. Further ones go to the file
/// of refusals, so that they displace no record of a call.
const DENIED_PART: u64 = 4;
/// The interval at which rotated files are checked for their age.
const LOOK: Duration = Duration::from_secs(3600);

/// The name of the chain of refusals.
const REFUSALS: &str = "refusals";

/// The orders to the writer, beside events.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) change: Option<Change>,
    /// Set when another process takes over this path: the file is renamed, and later events here
    /// are a branch in it. The reply is the record after which the other process continues.
    pub(super) aside: Option<oneshot::Sender<ChainHead>>,
    /// Set when the previous process has ended, with its last record if it sent one.
    pub(super) ended_before: Option<Option<ChainHead>>,
    /// Set by the writer at its end: the last record that it kept.
    pub(super) last: Option<ChainHead>,
    pub(super) stop: bool,
}

/// New settings.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) plan: AuditPlan,
    /// Another file to write to, if it changes.
    pub(super) place: Option<Place>,
    /// Other outlets, if they change.
    pub(super) outlets: Option<Outlets>,
}

impl Change {
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
pub(super) enum Role {
    /// The calls. Denials beyond their part of the file go to this queue.
    Calls { overflow: Arc<Queue> },
    /// The refusals, and the counts of those that are only counted.
    Refusals { counter: Arc<RefusalCounter> },
}

impl Role {
    fn chain(&self) -> Option<&'static str> {
        match self {
            Self::Calls { .. } => None,
            Self::Refusals { .. } => Some(REFUSALS),
        }
    }
}

/// The file of records with its end; `None` if records go to the outlets alone.
pub(super) type Place = Option<(Journal, Tail)>;

/// The state of the thread.
pub(super) struct Writer {
    queue: Arc<Queue>,
    orders: Arc<Mutex<Orders>>,
    role: Role,
    clock: Arc<dyn Clock>,
    plan: AuditPlan,
    journal: Option<Journal>,
    chain: AuditChain,
    outlets: Outlets,
    /// The number of records since the last sync; the next field is the time of the oldest of them.
    unsynced: usize,
    waiting_since: Option<Instant>,
    failing_since: Option<Instant>,
    said: Option<Instant>,
    looked: Option<Instant>,
    /// The length at which the file is rotated. It grows after a failed rotation, so that the next
    /// attempt is later.
    rotate_at: u64,
    /// The bytes of the file that are denials.
    denied: u64,
}

impl Writer {
    /// Returns a writer that continues at the end of `place`; in an empty one after `left`, the
    /// last record of the previous process.
    pub(super) fn new(
        (queue, orders, role): (Arc<Queue>, Arc<Mutex<Orders>>, Role),
        clock: Arc<dyn Clock>,
        plan: AuditPlan,
        place: (Place, Option<ChainHead>),
        outlets: Outlets,
    ) -> Self {
        let (place, left) = place;
        let (journal, tail) = place.unzip();
        let mut tail = tail.unwrap_or_else(Tail::empty);
        if tail == Tail::empty() {
            tail.head = left.unwrap_or(tail.head);
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
            said: None,
            looked: None,
            rotate_at,
            denied: 0,
        };
        if let Some(torn) = tail.torn {
            tracing::warn!(
                ?torn,
                "weir ended suddenly: the last audit records are not whole"
            );
            writer.life(torn);
        }
        writer.life(AuditLifecycle::Started {
            version: env!("CARGO_PKG_VERSION"),
            unclean: !tail.clean,
        });
        writer
    }

    /// Writes until it is ordered to stop or every sender is dropped. Signals `begun` when the
    /// first record is kept.
    pub(super) fn run(mut self, receiver: &Receiver<Message>, begun: oneshot::Sender<()>) {
        // However this function ends, records are not kept from then on.
        let _ended = Ended(self.queue.clone());
        if self.save(true) {
            // The receiver may be dropped.
            let _ = begun.send(());
            self.tidy();
        }
        loop {
            let first = match receiver.recv_timeout(self.patience()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.finish(receiver),
            };
            if matches!(first, Some(Message::Event(_))) {
                std::thread::park_timeout(GATHER);
            }
            self.take(first);
            for message in receiver.try_iter().take(BATCH) {
                self.take(Some(message));
            }
            // After all messages: an order is given before the message that wakes.
            if self.obey() {
                return self.finish(receiver);
            }
            self.lost();
            self.count(false);
            if !self.save(false) {
                return self.finish(receiver);
            }
            self.measure();
            self.tidy();
        }
    }

    /// Returns the time until the writer must act without a new event.
    fn patience(&self) -> Duration {
        match self.waiting_since {
            Some(since) => self
                .plan
                .sync
                .saturating_sub(since.elapsed())
                .max(Duration::from_millis(1)),
            None => match &self.role {
                Role::Calls { .. } => LOOK,
                Role::Refusals { counter } => counter.until_minute_ends(),
            },
        }
    }

    fn measure(&self) {
        if let Role::Calls { .. } = self.role {
            instruments()
                .audit_queue
                .record(self.queue.waiting() as u64, &[]);
        }
    }

    /// Records the counted refusals of the minutes that have ended, and with `open` of the current
    /// one.
    fn count(&mut self, open: bool) {
        if let Role::Refusals { counter } = &self.role {
            for event in counter.take(open) {
                self.record(&event);
            }
        }
    }

    fn take(&mut self, message: Option<Message>) {
        if let Some(Message::Event(event)) = message {
            self.queue.taken();
            match &self.role {
                Role::Calls { overflow } if event.is_denial() && self.is_full_of_denials() => {
                    // If the other queue is full, it counts the loss.
                    let _ = overflow.keep(event);
                }
                _ => self.record(&event),
            }
        }
    }

    fn is_full_of_denials(&self) -> bool {
        let part = self
            .plan
            .file
            .as_ref()
            .map_or(u64::MAX, |file| file.size / DENIED_PART);
        self.denied >= part && self.journal.as_ref().is_some_and(Journal::is_regular)
    }

    fn life(&mut self, life: AuditLifecycle) {
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
            self.life(AuditLifecycle::Lost { events });
        }
    }

    /// Writes all pending records, and syncs them if it is time or `now` is set. Retries until it
    /// succeeds. Returns false if it was ordered to stop before.
    fn save(&mut self, now: bool) -> bool {
        loop {
            let done = self.attempt(now);
            let well = done.is_ok();
            let was_well = self.queue.report(well);
            let Err(error) = done else {
                if let Some(since) = self.failing_since.take() {
                    self.said = None;
                    tracing::info!(
                        seconds = since.elapsed().as_secs(),
                        "audit records can be written again"
                    );
                }
                return true;
            };
            self.failing_since.get_or_insert_with(Instant::now);
            if was_well || self.said.is_none_or(|said| said.elapsed() > SAY_AGAIN) {
                self.said = Some(Instant::now());
                let path = self
                    .journal
                    .as_ref()
                    .map(|journal| journal.path().display().to_string());
                let calls = if self.plan.closed {
                    "refused"
                } else {
                    "served"
                };
                tracing::error!(path, %error, calls, "audit records cannot be written");
            }
            self.measure();
            std::thread::park_timeout(AGAIN);
            if self.obey() {
                return false;
            }
        }
    }

    fn attempt(&mut self, now: bool) -> std::io::Result<()> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        self.queue.watched(|| journal.flush())?;
        if !journal.is_open() {
            (self.unsynced, self.waiting_since) = (0, None);
            return Ok(());
        }
        let waited = self
            .waiting_since
            .is_some_and(|since| since.elapsed() >= self.plan.sync);
        if now || waited || self.unsynced >= UNSYNCED {
            let begun = Instant::now();
            self.queue.watched(|| journal.sync())?;
            instruments()
                .audit_sync
                .record(begun.elapsed().as_secs_f64(), &[]);
            (self.unsynced, self.waiting_since) = (0, None);
        }
        Ok(())
    }

    /// Follows orders. Returns true for the order to stop.
    fn obey(&mut self) -> bool {
        let (change, aside, ended_before, stop) = {
            let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            (
                orders.change.take(),
                orders.aside.take(),
                orders.ended_before.take(),
                orders.stop,
            )
        };
        if let Some(last) = ended_before {
            self.life(AuditLifecycle::Predecessor { last });
        }
        if let Some(change) = change {
            self.change(change);
        }
        if let Some(done) = aside {
            let left = self.step_aside();
            // The receiver may be dropped.
            let _ = done.send(left);
        }
        stop
    }

    /// Leaves the path to another process, which continues after the returned record. Later events
    /// here are a branch, in the renamed file.
    fn step_aside(&mut self) -> ChainHead {
        self.count(true);
        self.life(AuditLifecycle::Left);
        let left = self.chain.head().clone();
        let path = self.plan.file.as_ref().map(|file| file.path.as_path());
        // After a hand-over that failed the file is renamed already.
        let own = |journal: &&mut Journal| journal.is_regular() && Some(journal.path()) == path;
        let Some(journal) = self.journal.as_mut().filter(own) else {
            return left;
        };
        match journal.move_to(shelf::name(journal.path(), left.seq)) {
            // It must not be rotated again.
            Ok(()) => self.rotate_at = u64::MAX,
            Err(error) => {
                tracing::error!(%error, "the audit file cannot be put aside for the next process")
            }
        }
        left
    }

    fn change(
        &mut self,
        Change {
            plan,
            place,
            outlets,
        }: Change,
    ) {
        self.life(AuditLifecycle::Changed);
        // If this fails, the new file gets the records that the old one lacks.
        let kept = self.attempt(true);
        let place = place.or_else(|| self.found_moved(&plan));
        if let Some(place) = place {
            let (journal, tail) = place.unzip();
            let rest = std::mem::replace(&mut self.journal, journal)
                .map(Journal::abandon)
                .unwrap_or_default();
            if let Err(error) = kept {
                tracing::warn!(%error, bytes = rest.len(), "audit records move on from where they could not be written");
            }
            self.denied = 0;
            self.settle(tail.unwrap_or_else(Tail::empty), &rest);
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
    fn found_moved(&self, plan: &AuditPlan) -> Option<Place> {
        let journal = self
            .journal
            .as_ref()
            .filter(|journal| journal.is_regular() && journal.is_moved())?;
        let keys: Vec<_> = plan.key.iter().cloned().collect();
        match Journal::open(journal.path(), &keys) {
            Ok(place) => Some(Some(place)),
            Err(error) => {
                tracing::error!(path = %journal.path().display(), %error, "the audit file was moved, and no new one can be begun");
                None
            }
        }
    }

    /// Continues in a file that may hold another chain: that file is rotated first.
    fn settle(&mut self, tail: Tail, rest: &[u8]) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        if journal.is_regular()
            && journal.length() > 0
            && (tail.torn.is_some() || tail.head != *self.chain.head())
        {
            let name = shelf::name(journal.path(), tail.head.seq);
            if let Err(error) = journal.put_aside(&name) {
                tracing::error!(%error, "the audit file holds another chain and cannot be put aside: two follow one another in it");
            }
        }
        journal.push(rest);
        self.waiting_since = (!rest.is_empty()).then(Instant::now);
    }

    /// Rotates a full file, and removes old ones.
    fn tidy(&mut self) {
        let (Some(file), Some(journal)) = (&self.plan.file, &mut self.journal) else {
            return;
        };
        let full = journal.is_regular() && journal.length() >= self.rotate_at;
        if full {
            let name = shelf::name(journal.path(), self.chain.head().seq);
            let put = self
                .queue
                .watched(|| journal.sync().and_then(|()| journal.put_aside(&name)));
            if let Err(error) = put {
                tracing::error!(%error, "the audit file is full and cannot be put aside: it grows on");
                self.rotate_at = journal.length() + file.size;
            } else {
                (self.rotate_at, self.denied) = (file.size, 0);
                (self.unsynced, self.waiting_since) = (0, None);
            }
        }
        if full || self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            shelf::clear(&file.path, file.keep, file.keep_for, SystemTime::now());
        }
    }

    /// Writes the pending records and the record of the end.
    fn finish(mut self, receiver: &Receiver<Message>) {
        for message in receiver.try_iter() {
            self.take(Some(message));
        }
        self.lost();
        self.count(true);
        self.life(AuditLifecycle::Stopped);
        if let Err(error) = self.attempt(true) {
            let records = self.unsynced;
            tracing::error!(%error, records, "the last audit records could not be written, and are lost");
            return;
        }
        self.orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last = Some(self.chain.head().clone());
    }
}

/// A guard that marks the queue unhealthy at the end of the thread, also after a panic.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.report(false);
    }
}
