//! Permits for requests in flight. A request is in flight until its answer begins; the rest of an answer holds no permit.
//!
//! A request that finds no free permit waits for one (`limits.in_flight_wait`) before it is refused. A refusal costs about a
//! third of a call, and a refused client may try again at once, so that under overload refusals would take most of a
//! processor. A waiting request costs nothing. The newest request is served first: a served request has waited a short
//! time, and requests near their timeout are not served in vain.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// The most requests that wait at a time. Beyond it the oldest one is refused.
const MOST_WAITING: usize = 10_000;

/// The permits.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Permits>);

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit(Arc<Permits>);

#[derive(Debug, Default)]
struct Permits {
    taken: AtomicUsize,
    /// The limit, as the last request gave it.
    most: AtomicUsize,
    /// The length of the queue. A dropped permit locks the queue only if it is not 0.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<oneshot::Sender<InFlightPermit>>>,
}

impl InFlight {
    /// A permit where fewer than `most` are taken, or one that is given back within `wait`.
    ///
    /// Cancel safe: a dropped future leaves the queue.
    pub(crate) async fn enter(&self, most: usize, wait: Duration) -> Option<InFlightPermit> {
        let permits = &self.0;
        // A reload may change it.
        if permits.most.load(Ordering::Relaxed) != most {
            permits.most.store(most, Ordering::SeqCst);
        }
        if let Some(permit) = permits.take() {
            return Some(permit);
        }
        if wait.is_zero() {
            return None;
        }
        self.wait(wait).await
    }

    async fn wait(&self, wait: Duration) -> Option<InFlightPermit> {
        let given = self.0.stand_in_line();
        // A permit that was dropped before this request was in the queue went to no waiting request.
        if let Some(permit) = self.0.take() {
            return Some(permit);
        }
        timeout(wait, given).await.ok()?.ok()
    }
}

impl Permits {
    fn take(self: &Arc<Self>) -> Option<InFlightPermit> {
        let most = self.most.load(Ordering::SeqCst);
        let more = |taken| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(InFlightPermit(self.clone()))
    }

    fn stand_in_line(&self) -> oneshot::Receiver<InFlightPermit> {
        let (give, given) = oneshot::channel();
        let mut queue = self.queue();
        // Requests that timed out stand at the front.
        while queue.front().is_some_and(oneshot::Sender::is_closed) || queue.len() >= MOST_WAITING {
            queue.pop_front();
        }
        queue.push_back(give);
        self.waiting.store(queue.len(), Ordering::SeqCst);
        given
    }

    /// The newest request that still waits.
    fn next(&self) -> Option<oneshot::Sender<InFlightPermit>> {
        let mut queue = self.queue();
        let mut next = queue.pop_back();
        while next.as_ref().is_some_and(oneshot::Sender::is_closed) {
            next = queue.pop_back();
        }
        self.waiting.store(queue.len(), Ordering::SeqCst);
        next
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<oneshot::Sender<InFlightPermit>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let permits = &self.0;
        permits.taken.fetch_sub(1, Ordering::SeqCst);
        // Either this sees the waiting request, or that request sees the free permit.
        while permits.waiting.load(Ordering::SeqCst) > 0
            && let Some(permit) = permits.take()
        {
            let Some(next) = permits.next() else {
                // The last request left the queue, and its length is 0 now: this permit is dropped like any other.
                continue;
            };
            // A request that leaves at this moment drops its permit, which goes to the next request.
            if next.send(permit).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn taken(permits: &InFlight) -> usize {
        permits.0.taken.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn f11_the_last_that_waits_is_served_first_and_nobody_waits_for_ever() {
        let permits = InFlight::default();
        let held = permits.enter(1, LONG).await.unwrap();
        assert!(permits.enter(1, Duration::ZERO).await.is_none(), "this one does not want to wait");
        let (mut first, mut second) = (pin!(permits.enter(1, LONG)), pin!(permits.enter(1, LONG)));
        let mut looks = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut looks).is_pending() && second.as_mut().poll(&mut looks).is_pending());
        drop(held);
        assert!(first.as_mut().poll(&mut looks).is_pending());
        let Poll::Ready(Some(held)) = second.as_mut().poll(&mut looks) else { panic!("it is its turn") };
        assert!(permits.enter(1, Duration::from_millis(5)).await.is_none(), "its time is over");
        drop(held);
        assert!(first.await.is_some());
        assert_eq!(taken(&permits), 0);
    }

    #[tokio::test]
    async fn f11_who_goes_away_keeps_nothing() {
        let permits = InFlight::default();
        let held = permits.enter(1, LONG).await.unwrap();
        let mut looks = Context::from_waker(Waker::noop());
        let mut stays = Box::pin(permits.enter(1, LONG));
        assert!(stays.as_mut().poll(&mut looks).is_pending());
        for _ in 0..3 {
            let mut leaves = Box::pin(permits.enter(1, LONG));
            assert!(leaves.as_mut().poll(&mut looks).is_pending());
        }
        // This one goes when its permit is there already.
        let mut leaves = Box::pin(permits.enter(1, LONG));
        assert!(leaves.as_mut().poll(&mut looks).is_pending());
        drop(held);
        assert_eq!(taken(&permits), 1);
        drop(leaves);
        assert!(stays.await.is_some());
        assert_eq!(taken(&permits), 0);
    }

    #[tokio::test]
    async fn f11_the_queue_is_bounded_and_its_oldest_is_refused() {
        let permits = InFlight::default();
        let held = permits.enter(1, LONG).await.unwrap();
        let mut looks = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..=MOST_WAITING).map(|_| Box::pin(permits.enter(1, LONG))).collect();
        let refused = waiting.iter_mut().filter_map(|one| match one.as_mut().poll(&mut looks) {
            Poll::Ready(permit) => Some(permit.is_none()),
            Poll::Pending => None,
        });
        assert_eq!(refused.count(), 0, "each waits at first");
        assert!(matches!(waiting[0].as_mut().poll(&mut looks), Poll::Ready(None)));
        assert!(waiting[1].as_mut().poll(&mut looks).is_pending());
        drop(held);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn f11_no_permit_is_lost_between_who_waits_and_who_gives_back() {
        let permits = InFlight::default();
        let mut working = tokio::task::JoinSet::new();
        for number in 0..64 {
            let permits = permits.clone();
            working.spawn(async move {
                for round in 0..200 {
                    // Some leave soon, some stay.
                    let wait = if (number + round) % 3 == 0 { Duration::from_micros(50) } else { LONG };
                    let permit = permits.enter(3, wait).await;
                    assert!(taken(&permits) <= 3);
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
        assert_eq!(taken(&permits), 0);
    }
}
