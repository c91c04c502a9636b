//! Permits for requests in flight. A request is in flight until its answer begins; the rest of an
//! answer holds no permit.
//!
//! A request that finds no free permit waits for one (`limits.in_flight_wait`) before it is
//! refused. A refusal costs a third of a call, and as much as two calls if the connection has left
//! the processor's caches. A refused client may try again at once, so that under overload refusals
//! would take most of a processor; a waiting request costs no processor time. Requests are served
//! in their order. Only in a long queue the newest are served first: under lasting overload some
//! requests have to be refused, and the connections of the newest are still in the caches.
//!
//! A queue forms if more requests are in flight than a number for each worker thread. While there
//! is one, permits are given in rounds, and between two rounds every task that is ready has its
//! turn. So answers of upstreams go before new requests if the processor is the bottleneck: the
//! requests in flight are those that wait for their upstreams, and not also those that wait for the
//! processor. The state of a few requests stays in the processor's caches; with that of many, a
//! call takes half as long again. So while there is a queue few permits are given outside the
//! rounds: with 8 for each worker thread all of the peak is served when twice as many requests
//! come, with 32 four fifths of it. If the processor has time, rounds follow at once, and soon
//! there is no queue. Waiting in it costs about a twentieth of a call, so that one forms only if
//! there is a gain.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicUsize, Handle, Mutex, Ordering, oneshot, timeout, yield_now};

/// The most requests that wait at a time. Beyond it the oldest one is refused.
const MAX_QUEUED: usize = 10_000;
/// A queue is long from so many requests for each worker thread on.
const LONG_QUEUE: usize = 128;

/// Numbers of permits for each worker thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitsPerWorker {
    /// Given without a round while no request waits.
    pub(crate) without_queue: usize,
    /// Given without a round while requests wait.
    pub(crate) with_queue: usize,
    /// The most of one round.
    pub(crate) per_round: usize,
}

const PERMITS: PermitsPerWorker = PermitsPerWorker {
    without_queue: 32,
    with_queue: 8,
    per_round: 8,
};

/// The permits for requests in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlightLimit(Arc<PermitQueue>);

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlightPermit(Option<Arc<PermitQueue>>);

#[derive(Debug)]
struct PermitQueue {
    permits: PermitsPerWorker,
    taken: AtomicUsize,
    /// The limit, as the last request gave it.
    most: AtomicUsize,
    /// The length of the queue. A dropped permit locks the queue only if it is not 0.
    waiting: AtomicUsize,
    /// Requests that wait, the oldest first.
    queue: Mutex<VecDeque<oneshot::Sender<InFlightPermit>>>,
    /// True while a task gives permits in rounds.
    in_rounds: AtomicBool,
    /// The worker threads of the runtime.
    workers: OnceLock<usize>,
}

impl Default for InFlightLimit {
    fn default() -> Self {
        Self::new(PERMITS)
    }
}

impl InFlightLimit {
    /// A limit without requests.
    pub(crate) fn new(permits: PermitsPerWorker) -> Self {
        Self(Arc::new(PermitQueue {
            permits,
            taken: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
            in_rounds: AtomicBool::new(false),
            workers: OnceLock::new(),
        }))
    }

    /// The number of requests in flight.
    #[cfg(test)]
    fn taken(&self) -> usize {
        self.0.taken.load(Ordering::SeqCst)
    }

    /// A permit if fewer than `most` are taken, or one that is given back within `wait`.
    ///
    /// Cancel safe: a dropped future leaves the queue.
    pub(crate) async fn acquire(&self, most: usize, wait: Duration) -> Option<InFlightPermit> {
        match self.try_acquire(most, wait) {
            Some(permit) => Some(permit),
            None if wait.is_zero() => None,
            None => self.wait(wait).await,
        }
    }

    /// A permit for a request that would wait this long, if it need not wait.
    pub(crate) fn try_acquire(&self, most: usize, wait: Duration) -> Option<InFlightPermit> {
        let permits = &self.0;
        // A reload may change it.
        if permits.most.load(Ordering::Relaxed) != most {
            permits.most.store(most, Ordering::SeqCst);
        }
        let permit = permits.try_take(permits.without_round());
        if wait.is_zero() {
            return permit.or_else(|| permits.try_take(most));
        }
        permit
    }

    async fn wait(&self, wait: Duration) -> Option<InFlightPermit> {
        let permits = &self.0;
        let given = permits.join_queue();
        // A permit that was dropped before this request was in the queue went to no waiting
        // request.
        if let Some(permit) = permits.try_take(permits.without_round()) {
            return Some(permit);
        }
        permits.begin_rounds();
        timeout(wait, given).await.ok()?.ok()
    }
}

impl PermitQueue {
    /// A permit if fewer than `most` are taken.
    fn try_take(self: &Arc<Self>, most: usize) -> Option<InFlightPermit> {
        let more = |taken| (taken < most).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .ok()?;
        Some(InFlightPermit(Some(self.clone())))
    }

    /// The number of permits that are given without a round.
    fn without_round(&self) -> usize {
        let each = if self.waiting.load(Ordering::SeqCst) == 0 {
            self.permits.without_queue
        } else {
            self.permits.with_queue
        };
        self.most.load(Ordering::SeqCst).min(each * self.workers())
    }

    fn workers(&self) -> usize {
        *self
            .workers
            .get_or_init(|| Handle::current().metrics().num_workers())
    }

    /// Starts the task that gives permits in rounds, unless it runs or the limit leaves none for
    /// rounds.
    fn begin_rounds(self: &Arc<Self>) {
        // A runtime that ends drops every waiting request too.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.most.load(Ordering::SeqCst) > self.without_round()
            && !self.in_rounds.swap(true, Ordering::SeqCst)
        {
            runtime.spawn(self.clone().give_in_rounds());
        }
    }

    /// Gives permits until no request waits, or the limit is reached: then the next permit that is
    /// dropped begins anew.
    async fn give_in_rounds(self: Arc<Self>) {
        loop {
            // The tasks that are ready by now go first.
            yield_now().await;
            let mut left = self.permits.per_round * self.workers();
            while left > 0 && self.give_to_next(self.most.load(Ordering::SeqCst)) {
                left -= 1;
            }
            if left > 0 {
                self.in_rounds.store(false, Ordering::SeqCst);
                // A request that came meanwhile saw the task still running.
                let is_over = self.waiting.load(Ordering::SeqCst) == 0
                    || self.taken.load(Ordering::SeqCst) >= self.most.load(Ordering::SeqCst);
                if is_over || self.in_rounds.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        }
    }

    /// Gives a permit to the next request if fewer than `most` are taken. False without a permit or
    /// a request.
    fn give_to_next(self: &Arc<Self>, most: usize) -> bool {
        while self.waiting.load(Ordering::SeqCst) > 0
            && let Some(permit) = self.try_take(most)
        {
            let Some(next) = self.next_in_turn() else {
                // The last request left the queue, and its length is 0 now.
                permit.put_back();
                continue;
            };
            match next.send(permit) {
                Ok(()) => return true,
                // The request left at this moment.
                Err(permit) => permit.put_back(),
            }
        }
        false
    }

    fn join_queue(&self) -> oneshot::Receiver<InFlightPermit> {
        let (give, given) = oneshot::channel();
        let mut queue = self.queue.lock();
        // Requests that timed out stand at the front.
        while queue.front().is_some_and(oneshot::Sender::is_closed) || queue.len() >= MAX_QUEUED {
            queue.pop_front();
        }
        queue.push_back(give);
        self.waiting.store(queue.len(), Ordering::SeqCst);
        given
    }

    /// The next request in turn.
    fn next_in_turn(&self) -> Option<oneshot::Sender<InFlightPermit>> {
        let (mut queue, long) = (self.queue.lock(), LONG_QUEUE * self.workers());
        let mut next = || {
            if queue.len() > long {
                queue.pop_back()
            } else {
                queue.pop_front()
            }
        };
        let mut given = next();
        // One that is closed was for a request that waits no longer.
        while given.as_ref().is_some_and(oneshot::Sender::is_closed) {
            given = next();
        }
        self.waiting.store(queue.len(), Ordering::SeqCst);
        given
    }
}

impl InFlightPermit {
    /// Gives it back to no other request.
    fn put_back(mut self) {
        if let Some(permits) = self.0.take() {
            permits.taken.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let Some(permits) = self.0.take() else { return };
        permits.taken.fetch_sub(1, Ordering::SeqCst);
        // Either this sees the waiting request, or that request sees the free permit.
        if permits.waiting.load(Ordering::SeqCst) > 0
            && !permits.give_to_next(permits.without_round())
        {
            permits.begin_rounds();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::BTreeMap;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LONG_TIME: Duration = Duration::from_secs(3600);

    // Proves F11.
    #[tokio::test(start_paused = true)]
    async fn requests_are_served_in_order_and_no_wait_is_endless() {
        let permits = InFlightLimit::default();
        let held = permits.acquire(1, LONG_TIME).await.unwrap();
        assert!(
            permits.acquire(1, Duration::ZERO).await.is_none(),
            "this one does not want to wait"
        );
        let (mut first, mut second) = (
            pin!(permits.acquire(1, LONG_TIME)),
            pin!(permits.acquire(1, LONG_TIME)),
        );
        let mut looks = Context::from_waker(Waker::noop());
        assert!(
            first.as_mut().poll(&mut looks).is_pending()
                && second.as_mut().poll(&mut looks).is_pending()
        );
        drop(held);
        assert!(second.as_mut().poll(&mut looks).is_pending());
        let Poll::Ready(Some(held)) = first.as_mut().poll(&mut looks) else {
            panic!("it is its turn")
        };
        assert!(
            permits.acquire(1, Duration::from_millis(5)).await.is_none(),
            "its time is over"
        );
        drop(held);
        assert!(second.await.is_some());
        assert_eq!(permits.taken(), 0);
    }

    // Proves F11.
    #[tokio::test]
    async fn of_a_long_queue_the_newest_go_first() {
        let permits = InFlightLimit::default();
        let mut held = permits.acquire(1, LONG_TIME).await;
        let mut looks = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..LONG_QUEUE + 3)
            .map(|_| Some(Box::pin(permits.acquire(1, LONG_TIME))))
            .collect();
        for one in &mut waiting {
            assert!(one.as_mut().unwrap().as_mut().poll(&mut looks).is_pending());
        }
        let mut order = Vec::new();
        for _ in 0..5 {
            drop(held.take());
            for (number, one) in waiting.iter_mut().enumerate() {
                if let Some(Poll::Ready(permit)) =
                    one.as_mut().map(|one| one.as_mut().poll(&mut looks))
                {
                    *one = None;
                    held = permit;
                    order.push(number);
                }
            }
        }
        assert_eq!(
            order,
            [LONG_QUEUE + 2, LONG_QUEUE + 1, LONG_QUEUE, 0, 1],
            "what is left is not long"
        );
    }

    // Proves F11.
    #[tokio::test]
    async fn requests_beyond_a_few_go_in_rounds_behind_the_tasks_that_are_ready() {
        let permits = InFlightLimit::default();
        let (at_once, most) = (
            PERMITS.without_queue,
            PERMITS.without_queue + PERMITS.per_round + 3,
        );
        let mut looks = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..most + 2)
            .map(|_| Some(Box::pin(permits.acquire(most, LONG_TIME))))
            .collect();
        let mut held = BTreeMap::new();
        let mut look = |held: &mut BTreeMap<usize, InFlightPermit>| {
            for (number, one) in waiting.iter_mut().enumerate() {
                let polled = one
                    .as_mut()
                    .map_or(Poll::Pending, |waiting| waiting.as_mut().poll(&mut looks));
                if let Poll::Ready(permit) = polled {
                    *one = None;
                    held.insert(number, permit.unwrap());
                }
            }
            held.len()
        };
        assert_eq!(look(&mut held), at_once);
        let ready = tokio::spawn(async {});
        tokio::task::yield_now().await;
        assert!(ready.is_finished());
        while look(&mut held) == at_once {
            tokio::task::yield_now().await;
        }
        assert_eq!(held.len(), at_once + PERMITS.per_round, "a round");
        assert!(
            held.contains_key(&at_once) && !held.contains_key(&(most + 1)),
            "in their order"
        );
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(look(&mut held), most, "the limit holds");
        held.pop_first();
        held.pop_first();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            look(&mut held),
            most,
            "each permit that is given back goes to a request"
        );
        assert_eq!(permits.taken(), most);
        drop(held);
        assert_eq!(permits.taken(), 0);
    }

    // Proves F11.
    #[tokio::test]
    async fn request_that_leaves_the_queue_holds_no_permit() {
        let permits = InFlightLimit::default();
        let held = permits.acquire(1, LONG_TIME).await.unwrap();
        let mut looks = Context::from_waker(Waker::noop());
        let mut stays = Box::pin(permits.acquire(1, LONG_TIME));
        assert!(stays.as_mut().poll(&mut looks).is_pending());
        for _ in 0..3 {
            let mut leaves = Box::pin(permits.acquire(1, LONG_TIME));
            assert!(leaves.as_mut().poll(&mut looks).is_pending());
        }
        // This one leaves when its permit is already sent.
        let mut leaves = Box::pin(permits.acquire(1, LONG_TIME));
        assert!(leaves.as_mut().poll(&mut looks).is_pending());
        drop(held);
        assert_eq!(permits.taken(), 1);
        drop(leaves);
        assert!(stays.await.is_some());
        assert_eq!(permits.taken(), 0);
    }

    // Proves F11.
    #[tokio::test]
    async fn the_queue_is_bounded_and_its_oldest_is_refused() {
        let permits = InFlightLimit::default();
        let held = permits.acquire(1, LONG_TIME).await.unwrap();
        let mut looks = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..=MAX_QUEUED)
            .map(|_| Box::pin(permits.acquire(1, LONG_TIME)))
            .collect();
        let refused = waiting
            .iter_mut()
            .filter_map(|one| match one.as_mut().poll(&mut looks) {
                Poll::Ready(permit) => Some(permit.is_none()),
                Poll::Pending => None,
            });
        assert_eq!(refused.count(), 0, "each waits at first");
        assert!(matches!(
            waiting[0].as_mut().poll(&mut looks),
            Poll::Ready(None)
        ));
        assert!(waiting[1].as_mut().poll(&mut looks).is_pending());
        drop(held);
    }

    // Proves F11.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_permit_is_lost_between_waiting_and_releasing_requests() {
        // Without rounds, and with them.
        for (most, tasks) in [
            (3, 64),
            (4 * PERMITS.with_queue + 10, 4 * PERMITS.without_queue + 40),
        ] {
            let permits = InFlightLimit::default();
            let mut working = tokio::task::JoinSet::new();
            for number in 0..tasks {
                let permits = permits.clone();
                working.spawn(async move {
                    for round in 0..200 {
                        // Some leave soon, some stay.
                        let wait = if (number + round) % 3 == 0 {
                            Duration::from_micros(50)
                        } else {
                            LONG_TIME
                        };
                        let permit = permits.acquire(most, wait).await;
                        assert!(permits.taken() <= most);
                        if round % 2 == 0 {
                            tokio::task::yield_now().await;
                        }
                        drop(permit);
                    }
                });
            }
            while let Some(done) = working.join_next().await {
                done.unwrap();
            }
            assert_eq!(permits.taken(), 0);
        }
    }
}
