//! The thread that writes: takes events in batches, makes records of them, and does not let go of
//! one before it is kept.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::KeyValue;
use tokio::sync::oneshot;
use weir_core::port::Clock;
use weir_core::telemetry::instruments;
use weir_policy::audit::{Chain, Event, Head, Keeper as _, Life, RefusalCounter};

use super::journal::Journal;
use super::outlet::Outlets;
use super::queue::{Message, Queue};
use super::shelf;
use super::tail::Tail;
use crate::config::AuditPlan;

/// After the first event the writer waits this long for others, so that a busy weir wakes it
/// seldom.
const GATHER: Duration = Duration::from_millis(10);
/// The most events of one write.
const BATCH: usize = 512;
/// So many records are synced at the latest, however short the time was.
const UNSYNCED: usize = 1024;
/// Between two attempts to write where the last one failed.
const AGAIN: Duration = Duration::from_millis(250);
/// A failure that lasts is said again after this.
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// The part of a file that refused calls and refused senders can fill. Further ones go to the file
/// of refusals, so that they displace no record of a call.
const DENIED_PART: u64 = 4;
/// How often files that were put aside are looked at for their age.
const LOOK: Duration = Duration::from_secs(3600);

/// The name of the chain of refusals.
const REFUSALS: &str = "refusals";

/// What the writer is told beside events.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) change: Option<Change>,
    /// Another process is to go on at this path: the file goes aside, and what happens here yet is
    /// a branch there. Told when it is done: After which record the other one goes on.
    pub(super) aside: Option<oneshot::Sender<Head>>,
    /// The process before has ended, with this record, where it said so.
    pub(super) ended_before: Option<Option<Head>>,
    /// Said by the writer at its end: the last record that it kept.
    pub(super) last: Option<Head>,
    pub(super) stop: bool,
}

/// New settings.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) plan: AuditPlan,
    /// Another place to write to, where there is one.
    pub(super) place: Option<Place>,
    /// Other outlets, where they change.
    pub(super) outlets: Option<Outlets>,
}

impl Change {
    /// Both changes in one, where the writer has not come to the earlier one: what this one leaves
    /// as it is was opened for that one.
    pub(super) fn after(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before {
            self.place = self.place.or(before.place);
            self.outlets = self.outlets.or(before.outlets);
        }
        self
    }
}

/// What a writer writes beside the events of its queue, or instead of some of them.
#[derive(Debug)]
pub(super) enum Role {
    /// The calls. Denials beyond their part of the file go to this queue.
    Calls { overflow: Arc<Queue> },
    /// The refusals, and what is only counted of them.
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

/// Where records are kept; `None`: nowhere, they only go out.
pub(super) type Place = Option<(Journal, Tail)>;

/// The thread's state.
pub(super) struct Writer {
    queue: Arc<Queue>,
    orders: Arc<Mutex<Orders>>,
    role: Role,
    clock: Arc<dyn Clock>,
    plan: AuditPlan,
    journal: Option<Journal>,
    chain: Chain,
    outlets: Outlets,
    /// Records since the last sync, and since when the oldest of them waits.
    unsynced: usize,
    waiting_since: Option<Instant>,
    failing_since: Option<Instant>,
    said: Option<Instant>,
    looked: Option<Instant>,
    /// A file that could not be put aside is not tried again before it has grown by so much.
    rotate_at: u64,
    /// Bytes of the file that are denials.
    denied: u64,
}

impl Writer {
    /// A writer that goes on where `place` ends; in an empty one after `left`, the last record of
    /// the process before.
    pub(super) fn new(
        (queue, orders, role): (Arc<Queue>, Arc<Mutex<Orders>>, Role),
        clock: Arc<dyn Clock>,
        plan: AuditPlan,
        place: (Place, Option<Head>),
        outlets: Outlets,
    ) -> Self {
        let (place, left) = place;
        let (journal, tail) = place.unzip();
        let mut tail = tail.unwrap_or_else(Tail::empty);
        if tail == Tail::empty() {
            tail.head = left.unwrap_or(tail.head);
        }
        let chain = Chain::after(tail.head.clone(), plan.key.clone()).named(role.chain());
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
        writer.life(Life::Started {
            version: env!("CARGO_PKG_VERSION"),
            unclean: !tail.clean,
        });
        writer
    }

    /// Writes until it is told to stop, or everybody is gone. Says when the first record is kept.
    pub(super) fn run(mut self, receiver: &Receiver<Message>, begun: oneshot::Sender<()>) {
        // However this ends: from then on nothing is kept.
        let _ended = Ended(self.queue.clone());
        if self.save(true) {
            // Nobody may be waiting any more.
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

    /// How long there is nothing to do without a new event.
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

    /// Records what was only counted in the minutes that are over, and with `open` in the running
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
                    // What finds no room there is counted there.
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

    fn life(&mut self, life: Life) {
        self.record(&Event::life(self.clock.wall(), life));
    }

    fn record(&mut self, event: &Event) {
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

    /// Says in a record what found no room.
    fn lost(&mut self) {
        let events = self.queue.take_lost();
        if events > 0 {
            self.life(Life::Lost { events });
        }
    }

    /// Writes what is not written, and syncs it where it is time or `now` says so. Tries until it
    /// goes well; false: it was told to stop before.
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

    /// Follows orders; true: stop.
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
            self.life(Life::Predecessor { last });
        }
        if let Some(change) = change {
            self.change(change);
        }
        if let Some(done) = aside {
            let left = self.step_aside();
            // Nobody may be waiting any more.
            let _ = done.send(left);
        }
        stop
    }

    /// Leaves the path to another process, which goes on after the record that is given. What
    /// happens here from now on is a branch, in the file under its other name.
    fn step_aside(&mut self) -> Head {
        self.count(true);
        self.life(Life::Left);
        let left = self.chain.head().clone();
        let path = self.plan.file.as_ref().map(|file| file.path.as_path());
        // After an attempt of which nothing came it is aside already.
        let own = |journal: &&mut Journal| journal.is_regular() && Some(journal.path()) == path;
        let Some(journal) = self.journal.as_mut().filter(own) else {
            return left;
        };
        match journal.move_to(shelf::name(journal.path(), left.seq)) {
            // It is not to be put aside again.
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
        self.life(Life::Changed);
        // Where this fails, the new place gets what the old one has not.
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
            self.chain =
                Chain::after(self.chain.head().clone(), plan.key.clone()).named(self.role.chain());
        }
        self.rotate_at = plan.file.as_ref().map_or(u64::MAX, |file| file.size);
        self.plan = plan;
        if let Some(outlets) = outlets {
            self.outlets = outlets;
        }
    }

    /// Somebody moved the file away: then a new one is begun.
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

    /// Goes on in a file that may hold another chain: that one is put aside.
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

    /// Begins a new file where this one is full, and removes old ones.
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

    /// Writes what is still there, and that this is the end.
    fn finish(mut self, receiver: &Receiver<Message>) {
        for message in receiver.try_iter() {
            self.take(Some(message));
        }
        self.lost();
        self.count(true);
        self.life(Life::Stopped);
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

/// The end of the thread, also by a panic.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.report(false);
    }
}
