//! A number of bytes that many owners share, and wait for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use tokio::sync::Notify;

use crate::budget_owner::BudgetOwner;
use crate::fast::FastMap;
use crate::sync::{AtomicUsize, Mutex, Ordering, timeout};
use crate::telemetry::instruments;

/// A number of bytes that many owners share.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<ByteBudgetState>);

#[derive(Debug)]
struct ByteBudgetState {
    name: &'static str,
    limit: AtomicUsize,
    used: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
    /// The bytes that each owner has taken. Owners without bytes are not in it, so the budget
    /// bounds it.
    owners: Mutex<FastMap<BudgetOwner, usize>>,
}

/// The reservations that may wait for one budget at the same time: each holds a part of a message
/// already.
const MAX_WAITING: usize = 256;
/// An owner may have this many times the bytes that are left for others once it has its own. A
/// single owner can take three quarters of a budget, one beside others less, and a newcomer finds
/// some left.
const OWNER_TO_FREE_RATIO: usize = 3;
/// The divisor that gives one connection's window its part of the free bytes.
const FREE_SHARE_DIVISOR: usize = 8;

/// Bytes taken from a budget. Dropping it gives them back.
#[derive(Debug)]
pub struct ByteReservation {
    budget: ByteBudget,
    owner: Option<BudgetOwner>,
    bytes: usize,
}

impl ByteBudget {
    /// A budget without a limit; `name` is the value of the metric's label.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let (limit, used, waiting) = (
            AtomicUsize::new(usize::MAX),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let (freed, owners) = (Notify::new(), Mutex::default());
        Self(Arc::new(ByteBudgetState {
            name,
            limit,
            used,
            waiting,
            freed,
            owners,
        }))
    }

    /// Sets the limit from now on. Bytes that are already taken stay taken.
    pub fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// The limit of the budget in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// The bytes that are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`; no reservation if fewer are left.
    #[must_use]
    pub fn try_reserve(&self, bytes: usize) -> Option<ByteReservation> {
        let mut none = self.empty();
        none.try_grow(bytes).then_some(none)
    }

    /// The same for an owner, which leaves some to others.
    #[must_use]
    pub fn try_reserve_of(&self, owner: BudgetOwner, bytes: usize) -> Option<ByteReservation> {
        let mut none = self.empty_of(owner);
        none.try_grow(bytes).then_some(none)
    }

    /// An empty reservation that can grow.
    #[must_use]
    pub fn empty(&self) -> ByteReservation {
        ByteReservation {
            budget: self.clone(),
            owner: None,
            bytes: 0,
        }
    }

    /// The same for an owner, which leaves some to others.
    #[must_use]
    pub fn empty_of(&self, owner: BudgetOwner) -> ByteReservation {
        ByteReservation {
            budget: self.clone(),
            owner: Some(owner),
            bytes: 0,
        }
    }

    /// Takes at most `most` bytes, and no more than a part of the free bytes: the first callers get
    /// all, and the last still some.
    #[must_use]
    pub fn reserve_share(&self, most: usize) -> ByteReservation {
        let mut part = self.empty();
        let bytes = most.min(self.limit().saturating_sub(self.used()) / FREE_SHARE_DIVISOR);
        // Another caller may have been faster: then the reservation stays empty.
        let _taken = bytes > 0 && part.try_grow(bytes);
        part
    }

    /// The same as [`Self::try_reserve`], but waits up to `wait_limit` for others to give some back.
    pub async fn reserve(&self, bytes: usize, wait_limit: Duration) -> Option<ByteReservation> {
        let mut none = self.empty();
        none.grow(bytes, wait_limit).await.then_some(none)
    }

    pub(super) fn measure(&self) {
        instruments()
            .memory_reserved
            .record(self.used() as u64, &self.label());
    }

    fn take(&self, bytes: usize, owner: Option<BudgetOwner>) -> bool {
        // A reservation that waits sees the new limit, or the setter sees it waiting.
        let limit = self.0.limit.load(Ordering::SeqCst);
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let take = || {
            self.0
                .used
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
                .is_ok()
        };
        let Some(owner) = owner else { return take() };
        let mut owners = self.0.owners.lock();
        let own = owners.get(&owner).copied().unwrap_or(0) + bytes;
        let left = more(self.used()).map(|sum| limit - sum);
        let is_fair = left.is_some_and(|left| own <= left.saturating_mul(OWNER_TO_FREE_RATIO));
        if !is_fair || !take() {
            return false;
        }
        owners.insert(owner, own);
        true
    }

    /// Takes `bytes` as soon as there are so many; false if there are not in time, or if too many
    /// wait already.
    async fn wait(&self, bytes: usize, owner: Option<BudgetOwner>, wait_limit: Duration) -> bool {
        let Some(_waiting) = WaitingReservation::begin(&self.0.waiting) else {
            return false;
        };
        let taking = async {
            loop {
                let mut freed = pin!(self.0.freed.notified());
                // Registered before the check, so that bytes freed between the two are noticed.
                freed.as_mut().enable();
                if self.take(bytes, owner) {
                    break;
                }
                freed.await;
            }
        };
        timeout(wait_limit, taking).await.is_ok()
    }

    /// Wakes every waiting reservation: the share that each owner has decides which of them may
    /// take the freed bytes.
    fn wake(&self) {
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            self.0.freed.notify_waiters();
        }
    }

    fn count_refusal(&self) {
        instruments().memory_refused.add(1, &self.label());
    }

    fn label(&self) -> [KeyValue; 1] {
        [KeyValue::new("budget", self.0.name)]
    }
}

/// One waiting reservation.
struct WaitingReservation<'a>(&'a AtomicUsize);

impl<'a> WaitingReservation<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let waiting = Self(count);
        (count.fetch_add(1, Ordering::SeqCst) < MAX_WAITING).then_some(waiting)
    }
}

impl Drop for WaitingReservation<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ByteReservation {
    /// The bytes of this reservation.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most that could be taken if no other owner had any.
    #[must_use]
    pub fn most(&self) -> usize {
        let limit = self.budget.limit();
        if self.owner.is_some() {
            limit - limit / (OWNER_TO_FREE_RATIO + 1)
        } else {
            limit
        }
    }

    /// Takes more, waiting up to `wait_limit` for others to give some back. False if they do not;
    /// then the reservation is unchanged.
    pub async fn grow(&mut self, bytes: usize, wait_limit: Duration) -> bool {
        let budget = self.budget.clone();
        // The usual case needs no timer.
        let taken = budget.take(bytes, self.owner)
            || (bytes <= self.most() && budget.wait(bytes, self.owner, wait_limit).await);
        self.grown(bytes, taken)
    }

    /// The same without waiting.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let taken = self.budget.take(bytes, self.owner);
        self.grown(bytes, taken)
    }

    fn grown(&mut self, bytes: usize, taken: bool) -> bool {
        if taken {
            self.bytes += bytes;
        } else {
            self.budget.count_refusal();
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
        Bytes::from_owner(ReservedBytes {
            bytes,
            _reservation: self,
        })
    }

    fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Some(owner) = self.owner {
            let mut owners = self.budget.0.owners.lock();
            if let Some(own) = owners.get_mut(&owner) {
                *own = own.saturating_sub(bytes);
                if *own == 0 {
                    owners.remove(&owner);
                    // The map must not keep the capacity of many owners that have left.
                    if owners.capacity() > 64 && owners.len() * 4 < owners.capacity() {
                        owners.shrink_to_fit();
                    }
                }
            }
        }
        self.budget.0.used.fetch_sub(bytes, Ordering::SeqCst);
        self.budget.wake();
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: ByteReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use crate::network::SenderNetwork;

    use super::*;

    const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn returned_bytes_go_to_the_next_waiting_reservation() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(100);
        let held = budget.try_reserve(80);
        assert!(held.is_some() && budget.try_reserve(21).is_none());
        assert!(
            budget.reserve(21, RESERVE_TIMEOUT).await.is_none(),
            "nobody gave any back"
        );
        let (waiting, _) = tokio::join!(budget.reserve(50, RESERVE_TIMEOUT), async { drop(held) });
        assert_eq!(budget.used(), 50);
        let mut waiting = waiting;
        if let Some(waiting) = &mut waiting {
            assert!(
                waiting.grow(50, RESERVE_TIMEOUT).await && !waiting.grow(1, RESERVE_TIMEOUT).await
            );
            waiting.shrink(70);
        }
        assert_eq!(budget.used(), 30);
        drop(waiting);
        assert_eq!(budget.used(), 0);
        assert!(
            budget.reserve(101, Duration::MAX).await.is_none(),
            "there will never be so much"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn returned_bytes_serve_every_waiting_reservation_that_fits() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(90);
        let first = budget.try_reserve(90);
        let three =
            futures_util::future::join_all((0..3).map(|_| budget.reserve(30, RESERVE_TIMEOUT)));
        let (three, ()) = tokio::join!(three, async { drop(first) });
        assert_eq!(three.iter().flatten().count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn reservations_beyond_the_waiting_limit_are_refused_at_once() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(1);
        let _held = budget.try_reserve(1);
        let waiters = futures_util::future::join_all(
            (0..MAX_WAITING).map(|_| budget.reserve(1, RESERVE_TIMEOUT)),
        );
        let began = tokio::time::Instant::now();
        let late = async {
            tokio::task::yield_now().await;
            let refused = budget.reserve(1, RESERVE_TIMEOUT).await.is_none();
            (refused, began.elapsed())
        };
        let (waiters, late) = tokio::join!(waiters, late);
        assert_eq!(late, (true, Duration::ZERO));
        assert!(waiters.iter().all(Option::is_none));
    }

    fn network(last: u8) -> BudgetOwner {
        BudgetOwner::Network(SenderNetwork::V4([192, 0, last]))
    }

    #[test]
    fn no_owner_can_exhaust_the_byte_budget() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(1000);
        let all_of = |owner| {
            let mut taken = budget.empty_of(owner);
            while taken.try_grow(1) {}
            taken
        };
        let first = all_of(network(1));
        assert_eq!((first.bytes(), first.most()), (750, 750));
        let second = all_of(network(2));
        assert!((180..190).contains(&second.bytes()), "{}", second.bytes());
        let third = all_of(network(3));
        assert!((40..50).contains(&third.bytes()), "{}", third.bytes());
        assert!(
            budget.try_reserve(10).is_some(),
            "what is nobody's takes what is left"
        );
        drop(first);
        assert!(
            all_of(network(2)).bytes() > 300,
            "less than another had, since it has some already"
        );
        drop((second, third));
        assert_eq!(budget.used(), 0);
        assert!(budget.0.owners.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn owner_at_its_share_does_not_block_others() {
        let budget = ByteBudget::new("bodies");
        budget.set_limit(100);
        let some = budget.try_reserve(60);
        let mut greedy = budget.empty_of(network(1));
        assert!(greedy.try_grow(30));
        let (mut more, mut modest) = (budget.empty_of(network(1)), budget.empty_of(network(2)));
        let (more, modest, ()) = tokio::join!(
            more.grow(60, RESERVE_TIMEOUT),
            modest.grow(20, RESERVE_TIMEOUT),
            async {
                tokio::task::yield_now().await;
                drop(some);
            }
        );
        assert_eq!((more, modest), (false, true));
    }

    #[test]
    fn budget_shares_shrink_and_never_exhaust_the_budget() {
        let budget = ByteBudget::new("windows");
        budget.set_limit(8000);
        let parts: Vec<_> = (0..20).map(|_| budget.reserve_share(1000)).collect();
        assert_eq!((parts[0].bytes(), parts[1].bytes()), (1000, 875));
        assert!(parts[19].bytes() > 0 && budget.used() < 8000);
    }

    #[test]
    fn the_last_part_of_a_body_gives_back_all_of_it() {
        let budget = ByteBudget::new("bodies");
        let body = budget
            .try_reserve(5)
            .map(|reservation| reservation.hold(Bytes::from_static(b"abcde")));
        let part = body.as_ref().map(|body| body.slice(1..2));
        drop(body);
        assert_eq!(budget.used(), 5);
        drop(part);
        assert_eq!(budget.used(), 0);
    }
}
