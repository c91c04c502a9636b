//! The queue of events between requests and the writer thread. No function here blocks or waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::audit_service::copy_backlog::dropped;
use crate::audit_service::event_places::EventPlaces;
use crate::record::{AuditEvent, EventKeeper, RecordNotKept};
use weir_core::instant::millis;
use weir_core::telemetry::instruments;

/// A write that takes longer than this counts as hanging, not as slow.
const HANG_TIMEOUT: Duration = Duration::from_secs(5);
/// Denied calls and authentication events have at most half of the queue, so that repeated refusals
/// leave room for calls.
const DENIED: usize = 2;

/// A message to the writer.
#[derive(Debug)]
pub(super) enum AuditWriterMessage {
    /// An event to write.
    Event(AuditEvent),
    /// A wake-up: there are new orders.
    Wake,
}

/// The sending side of the queue.
#[derive(Debug)]
pub(super) struct AuditEventQueue {
    sender: SyncSender<AuditWriterMessage>,
    /// The `sink` attribute of its losses in the metrics.
    sink: &'static str,
    limit: usize,
    /// The places of events. Each allowed call has one for its event in a closed queue.
    places: EventPlaces,
    /// The number of events dropped since the last `Lost` record.
    lost: AtomicU64,
    /// True if a call is refused without a record.
    closed: AtomicBool,
    /// True if the last write succeeded.
    healthy: AtomicBool,
    /// True if the last write failed; then this queue is counted in `failures`.
    failing: AtomicBool,
    /// The number of queues whose last write failed.
    failures: Arc<AtomicUsize>,
    began: Instant,
    /// The time since which the writer is in a system call: milliseconds after `began`, 0 if it is
    /// not.
    busy_since: AtomicU64,
}

impl AuditEventQueue {
    /// Returns a queue of this capacity. It is unhealthy until the writer reports its first
    /// success.
    pub(super) fn new(limit: usize, closed: bool) -> (Self, Receiver<AuditWriterMessage>) {
        Self::of(limit, closed, "queue", Arc::default())
    }

    /// Returns an open queue for refusals. Its failures count together with those of `calls`.
    pub(super) fn of_refusals(limit: usize, calls: &Self) -> (Self, Receiver<AuditWriterMessage>) {
        Self::of(limit, false, "refusals", calls.failures.clone())
    }

    fn of(
        limit: usize,
        closed: bool,
        sink: &'static str,
        failures: Arc<AtomicUsize>,
    ) -> (Self, Receiver<AuditWriterMessage>) {
        dropped(sink, 0);
        // A few slots more, so that the writer can be woken however full it is.
        let (sender, receiver) = sync_channel(limit + 8);
        let queue = Self {
            sender,
            sink,
            limit,
            places: EventPlaces::default(),
            lost: AtomicU64::new(0),
            closed: AtomicBool::new(closed),
            healthy: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            failures,
            began: Instant::now(),
            busy_since: AtomicU64::new(0),
        };
        (queue, receiver)
    }

    /// Sets if calls are refused while records cannot be kept.
    pub(super) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Ordering::Release);
    }

    /// Wakes the writer. If the channel is full, the writer is awake.
    pub(super) fn wake(&self) {
        let _ = self.sender.try_send(AuditWriterMessage::Wake);
    }

    /// Counts an event as taken by the writer.
    pub(super) fn taken(&self) {
        self.places.give_back();
    }

    /// Returns the number of waiting events.
    pub(super) fn waiting(&self) -> usize {
        self.places.queued()
    }

    /// Returns the number of dropped events, and resets it.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::AcqRel)
    }

    /// Sets the health after a write. Returns the former health.
    pub(super) fn set_healthy(&self, healthy: bool) -> bool {
        self.record_failing(!healthy);
        self.healthy.swap(healthy, Ordering::AcqRel)
    }

    /// Marks the end of the writer: no record is kept from now on. That is a failure only if it
    /// `has_failed`, because an operator may switch the audit off.
    pub(super) fn set_ended(&self, has_failed: bool) {
        self.healthy.store(false, Ordering::Release);
        self.record_failing(has_failed);
    }

    fn record_failing(&self, is_failing: bool) {
        match (self.failing.swap(is_failing, Ordering::AcqRel), is_failing) {
            (false, true) => self.failures.fetch_add(1, Ordering::AcqRel),
            (true, false) => self.failures.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
        let failing = self.failures.load(Ordering::Acquire) > 0;
        instruments().audit_failing.record(u64::from(failing), &[]);
    }

    /// Runs work of the writer that the system may block, and times it.
    pub(super) fn run_timed<T>(&self, work: impl FnOnce() -> T) -> T {
        self.busy_since.store(self.now().max(1), Ordering::Release);
        let done = work();
        self.busy_since.store(0, Ordering::Release);
        done
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed())
    }

    /// Reports if an event put in now will be written soon.
    fn is_writing(&self) -> bool {
        let since = self.busy_since.load(Ordering::Acquire);
        let hangs = since > 0 && self.now().saturating_sub(since) > HANG_TIMEOUT.as_millis() as u64;
        self.healthy.load(Ordering::Acquire) && !hangs
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Puts in an event that has its place, if the channel has room.
    fn put(&self, event: AuditEvent) -> Result<(), RecordNotKept> {
        match self.sender.try_send(AuditWriterMessage::Event(event)) {
            Ok(()) => Ok(()),
            // The channel is full, or the writer has ended: the event is lost either way.
            Err(_) => {
                self.taken();
                Err(self.lose())
            }
        }
    }

    fn lose(&self) -> RecordNotKept {
        if self.lost.fetch_add(1, Ordering::AcqRel) == 0 {
            tracing::error!("audit queue full, records dropped");
        }
        dropped(self.sink, 1);
        RecordNotKept
    }
}

impl EventKeeper for AuditEventQueue {
    fn reserve(&self) -> Result<(), RecordNotKept> {
        if !self.is_closed() {
            self.places.promise();
            return Ok(());
        }
        if self.is_writing() && self.places.promise_within(self.limit) {
            return Ok(());
        }
        instruments().audit_refused.add(1, &[]);
        Err(RecordNotKept)
    }

    fn can_reserve(&self) -> bool {
        !self.is_closed() || self.is_writing() && self.places.has_room(self.limit)
    }

    fn keep_reserved(&self, event: AuditEvent) {
        // A call that was allowed before the audit was switched on has no reserved place.
        self.places.take_promised();
        // A closed queue has room, since a place was reserved; an open one counts the loss.
        let _ = self.put(event);
    }

    fn keep(&self, event: AuditEvent) -> Result<(), RecordNotKept> {
        let closed = self.is_closed();
        let is_denied = event.is_denial() || event.kind() == "entry";
        let limit = if is_denied {
            self.limit / DENIED
        } else {
            self.limit
        };
        let kept = if self.places.take_within(limit, closed) {
            self.put(event)
        } else {
            Err(self.lose())
        };
        if closed { kept } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::UNIX_EPOCH;

    use crate::record::AuditLifecycle;

    use super::*;

    fn event() -> AuditEvent {
        AuditEvent::life(UNIX_EPOCH, AuditLifecycle::Changed)
    }

    // Proves F13.
    #[test]
    fn fail_open_audit_queue_accepts_every_call_and_counts_lost_records() {
        let (queue, _receiver) = AuditEventQueue::new(4, false);
        for _ in 0..100 {
            queue.reserve().unwrap();
        }
        for _ in 0..100 {
            queue.keep(event()).unwrap();
            queue.keep_reserved(event());
        }
        let kept = queue.waiting();
        assert!((4..=12).contains(&kept), "{kept}");
        assert_eq!(queue.take_lost(), 200 - kept as u64);
        assert_eq!(queue.take_lost(), 0);
    }

    // Proves F13.
    #[test]
    fn a_closed_queue_loses_nothing_that_it_promised() {
        let (queue, receiver) = AuditEventQueue::new(4, true);
        assert!(!queue.can_reserve());
        assert!(queue.reserve().is_err(), "nothing was ever written");
        queue.set_healthy(true);
        assert!(queue.can_reserve());
        queue.reserve().unwrap();
        queue.reserve().unwrap();
        queue.keep(event()).unwrap();
        queue.keep(event()).unwrap();
        assert!(queue.keep(event()).is_err());
        assert!(queue.reserve().is_err());
        assert_eq!(queue.take_lost(), 1);
        queue.keep_reserved(event());
        queue.keep_reserved(event());
        assert_eq!((queue.take_lost(), queue.waiting()), (0, 4));
        assert!(!queue.can_reserve());
        assert!(queue.reserve().is_err());
        for _ in 0..4 {
            assert!(matches!(
                receiver.try_recv(),
                Ok(AuditWriterMessage::Event(_))
            ));
            queue.taken();
        }
        queue.reserve().unwrap();
        queue.set_healthy(false);
        assert!(!queue.can_reserve());
        assert!(queue.reserve().is_err(), "the disk is full");
        queue.set_closed(false);
        assert!(queue.can_reserve());
        queue.reserve().unwrap();
    }

    // Proves F13.
    #[test]
    fn a_write_that_hangs_closes_a_closed_queue() {
        let (mut queue, _receiver) = AuditEventQueue::new(4, true);
        queue.set_healthy(true);
        queue.began = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        queue.run_timed(|| queue.reserve().unwrap());
        queue.busy_since.store(1000, Ordering::Release);
        assert!(queue.reserve().is_err());
    }

    #[test]
    fn writer_that_ends_in_order_is_no_failure_and_one_that_panics_is() {
        let (calls, _receiver) = AuditEventQueue::new(4, true);
        let (refusals, _receiver) = AuditEventQueue::of_refusals(4, &calls);
        let failures = || calls.failures.load(Ordering::Acquire);
        for queue in [&calls, &refusals] {
            queue.set_healthy(true);
            queue.set_ended(false);
        }
        assert_eq!(failures(), 0);
        assert!(calls.reserve().is_err(), "no record is kept");
        // The audit is switched off while the disk is full.
        calls.set_healthy(false);
        calls.set_ended(false);
        assert_eq!(failures(), 0);
        calls.set_ended(true);
        assert_eq!(failures(), 1);
    }

    // Proves F13.
    #[test]
    fn audit_queue_without_a_writer_counts_lost_records() {
        let (queue, receiver) = AuditEventQueue::new(4, true);
        queue.set_healthy(true);
        drop(receiver);
        queue.reserve().unwrap();
        queue.keep_reserved(event());
        assert_eq!((queue.take_lost(), queue.waiting()), (1, 0));
    }
}
