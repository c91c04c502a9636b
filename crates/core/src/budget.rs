//! What the process may use as a whole, however many share it: memory for what others send, and file descriptors.
//!
//! Bounds of single parts do not add up to a bound of the process. What can be held many times over is taken from a budget here,
//! before it is held, and given back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::telemetry::instruments;

/// The budgets of one process. Clones are the same budgets.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bodies of requests, from their first byte until nothing refers to them any more.
    pub bodies: ByteBudget,
    /// What upstreams and clients say that waits to be taken.
    pub messages: ByteBudget,
    /// The names of what clients subscribe to.
    pub subscriptions: ByteBudget,
    /// File descriptors.
    pub descriptors: Descriptors,
}

impl Budgets {
    /// Divides so much memory of the process: what is held for a moment may be held twice while it goes on, and the rest is for
    /// connections, catalogs and whatever is bounded by itself.
    pub fn divide(&self, memory: usize) {
        self.bodies.set_limit(memory / 4);
        self.messages.set_limit(memory / 16);
        self.subscriptions.set_limit(memory / 16);
    }

    /// Records what is taken of each.
    pub fn measure(&self) {
        [&self.bodies, &self.messages, &self.subscriptions].into_iter().for_each(ByteBudget::measure);
    }
}

impl Default for Budgets {
    /// Budgets without end.
    fn default() -> Self {
        Self {
            bodies: ByteBudget::new("bodies"),
            messages: ByteBudget::new("messages"),
            subscriptions: ByteBudget::new("subscriptions"),
            descriptors: Descriptors::default(),
        }
    }
}

/// A number of bytes that many share.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<Bytewise>);

#[derive(Debug)]
struct Bytewise {
    name: &'static str,
    limit: AtomicUsize,
    used: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
}

/// Who may wait for one budget at the same time: each holds what it has of a message already.
const MOST_WAITING: usize = 256;

/// Bytes taken from a budget. Dropping it gives them back.
#[derive(Debug)]
pub struct Reservation {
    budget: ByteBudget,
    bytes: usize,
}

impl ByteBudget {
    /// A budget without end; `name` is the word of the metric.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let (limit, used, waiting) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Bytewise { name, limit, used, waiting, freed: Notify::new() }))
    }

    /// Holds from now on. What is taken already stays taken.
    pub fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
        self.0.freed.notify_one();
    }

    /// What may be taken altogether.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// What is taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Takes so many bytes; `None` where there are not so many left.
    #[must_use]
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        if self.take(bytes) {
            return Some(Reservation { budget: self.clone(), bytes });
        }
        self.refused();
        None
    }

    /// A reservation of nothing, which can grow.
    #[must_use]
    pub fn nothing(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// The same as [`Self::try_reserve`], but waits so long for others to give some back.
    pub async fn reserve(&self, bytes: usize, patience: Duration) -> Option<Reservation> {
        let mut none = self.nothing();
        none.grow(bytes, patience).await.then_some(none)
    }

    fn measure(&self) {
        instruments().memory_reserved.record(self.used() as u64, &self.label());
    }

    fn take(&self, bytes: usize) -> bool {
        let limit = self.limit();
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes so many bytes as soon as there are so many; false where there are not in time, or too many wait already.
    async fn wait(&self, bytes: usize, patience: Duration) -> bool {
        let Some(_waiting) = Waiting::begin(&self.0.waiting) else { return false };
        let taking = async {
            loop {
                let freed = self.0.freed.notified();
                if self.take(bytes) {
                    break;
                }
                freed.await;
            }
        };
        timeout(patience, taking).await.is_ok()
    }

    fn refused(&self) {
        instruments().memory_refused.add(1, &self.label());
    }

    fn label(&self) -> [KeyValue; 1] {
        [KeyValue::new("budget", self.0.name)]
    }
}

/// One who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let waiting = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < MOST_WAITING).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reservation {
    /// Takes more, waiting so long for others to give some back; false where they do not, and then nothing has changed.
    pub async fn grow(&mut self, bytes: usize, patience: Duration) -> bool {
        let budget = self.budget.clone();
        // The usual case needs no timer.
        let taken = budget.take(bytes) || (bytes <= budget.limit() && budget.wait(bytes, patience).await);
        if taken {
            self.bytes += bytes;
            // There may be enough left for the next who waits.
            budget.0.freed.notify_one();
        } else {
            budget.refused();
        }
        taken
    }

    /// The same without waiting.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let taken = self.budget.take(bytes);
        if taken {
            self.bytes += bytes;
        } else {
            self.budget.refused();
        }
        taken
    }

    /// Gives some back.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.give_back(bytes);
    }

    /// The bytes, which hold the reservation until the last part of them is dropped.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _reservation: self })
    }

    fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.budget.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.0.freed.notify_one();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

struct Held {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The file descriptors of the process. Connections of clients and to upstreams are counted here; everything else that is open
/// is seen from time to time. Some are kept for operators, reloads and whatever opens a file.
#[derive(Clone, Debug)]
pub struct Descriptors(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// What the process may open.
    limit: AtomicUsize,
    /// What was open beside the connections that are counted.
    others: AtomicUsize,
    clients: AtomicUsize,
    upstreams: AtomicUsize,
}

/// Descriptors that no connection gets.
const RESERVED: usize = 64;

/// The side of weir that a connection is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client's.
    Front,
    /// To an upstream.
    Upstream,
}

/// The descriptor of one connection. Dropping it gives it back.
#[derive(Debug)]
pub struct Descriptor {
    counts: Arc<Counts>,
    side: Side,
}

impl Default for Descriptors {
    /// As many as there are.
    fn default() -> Self {
        let zero = || AtomicUsize::new(0);
        let limit = AtomicUsize::new(usize::MAX);
        Self(Arc::new(Counts { limit, others: zero(), clients: zero(), upstreams: zero() }))
    }
}

impl Descriptors {
    /// What the process may open, and what it has open now.
    pub fn observe(&self, limit: usize, open: usize) {
        let counted = self.0.counted();
        self.0.limit.store(limit, Ordering::Relaxed);
        self.0.others.store(open.saturating_sub(counted), Ordering::Relaxed);
    }

    /// One for a connection; `None` where the rest is kept for others. Neither side gets all: without the other it is of no use.
    #[must_use]
    pub fn take(&self, side: Side) -> Option<Descriptor> {
        let counts = &self.0;
        let own = counts.of(side).fetch_add(1, Ordering::Relaxed) + 1;
        let descriptor = Descriptor { counts: counts.clone(), side };
        let left = counts.limit.load(Ordering::Relaxed).saturating_sub(counts.others.load(Ordering::Relaxed));
        let left = left.saturating_sub(RESERVED);
        if counts.counted() <= left && own <= left - side.kept_for_the_other(left) {
            return Some(descriptor);
        }
        instruments().descriptors_refused.add(1, &[KeyValue::new("side", side.word())]);
        None
    }
}

impl Counts {
    fn of(&self, side: Side) -> &AtomicUsize {
        match side {
            Side::Front => &self.clients,
            Side::Upstream => &self.upstreams,
        }
    }

    fn counted(&self) -> usize {
        self.clients.load(Ordering::Relaxed) + self.upstreams.load(Ordering::Relaxed)
    }
}

impl Side {
    /// What the other side has at least: clients are many, and one of them may need no connection to an upstream.
    fn kept_for_the_other(self, left: usize) -> usize {
        match self {
            Self::Front => left / 16,
            Self::Upstream => left / 4,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Upstream => "upstream",
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.counts.of(self.side).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_is_given_back_to_the_next_who_waits() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(100);
        let held = budget.try_reserve(80);
        assert!(held.is_some() && budget.try_reserve(21).is_none());
        assert!(budget.reserve(21, PATIENCE).await.is_none(), "nobody gave any back");
        let (waiting, _) = tokio::join!(budget.reserve(50, PATIENCE), async { drop(held) });
        assert_eq!(budget.used(), 50);
        let mut waiting = waiting;
        if let Some(waiting) = &mut waiting {
            assert!(waiting.grow(50, PATIENCE).await && !waiting.grow(1, PATIENCE).await);
            waiting.shrink(70);
        }
        assert_eq!(budget.used(), 30);
        drop(waiting);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(101, Duration::MAX).await.is_none(), "there will never be so much");
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_fit_get_theirs_when_one_gives_back() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(90);
        let first = budget.try_reserve(90);
        let three = futures_util::future::join_all((0..3).map(|_| budget.reserve(30, PATIENCE)));
        let (three, ()) = tokio::join!(three, async { drop(first) });
        assert_eq!(three.iter().flatten().count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_refused_at_once() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(1);
        let _held = budget.try_reserve(1);
        let crowd = futures_util::future::join_all((0..MOST_WAITING).map(|_| budget.reserve(1, PATIENCE)));
        let began = tokio::time::Instant::now();
        let late = async {
            tokio::task::yield_now().await;
            let refused = budget.reserve(1, PATIENCE).await.is_none();
            (refused, began.elapsed())
        };
        let (crowd, late) = tokio::join!(crowd, late);
        assert_eq!(late, (true, Duration::ZERO));
        assert!(crowd.iter().all(Option::is_none));
    }

    #[test]
    fn the_last_part_of_a_body_gives_back_all_of_it() {
        let budget = ByteBudget::new("bodies");
        let body = budget.try_reserve(5).map(|reservation| reservation.hold(Bytes::from_static(b"abcde")));
        let part = body.as_ref().map(|body| body.slice(1..2));
        drop(body);
        assert_eq!(budget.used(), 5);
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn some_descriptors_are_left_whoever_opens_connections() {
        let descriptors = Descriptors::default();
        descriptors.observe(1000, 136);
        let take = |side| std::iter::from_fn(|| descriptors.take(side)).collect::<Vec<_>>();
        let clients = take(Side::Front);
        assert_eq!(clients.len(), 750, "of what is left beside 64 and what was open");
        let upstreams = take(Side::Upstream);
        assert_eq!(upstreams.len(), 50);
        descriptors.observe(1000, 136 + 800);
        assert!(descriptors.take(Side::Front).is_none());
        drop((clients, upstreams));
        descriptors.observe(1000, 136);
        assert_eq!(take(Side::Upstream).len(), 600);
    }
}
