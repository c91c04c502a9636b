//! A future that is polled only after it was woken.
//!
//! hyper polls its service's future whenever it polls the connection, for example after the service
//! took the last part of a request's body. The way down to a call that waits for its upstream is
//! long, so such a poll costs much and finds nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

use crate::sync::{AtomicBool, AtomicWaker, Ordering};

pin_project! {
    /// The future `inner`, polled once at first, and then after each wake alone.
    pub(super) struct PollOnWake<F> {
        #[pin]
        inner: F,
        wakes: Arc<ServiceWakes>,
        waker: Waker,
    }
}

/// The wakes of a connection's service. It has one future at a time; a late wake of an earlier
/// future costs the next one a poll.
#[derive(Default)]
pub(super) struct ServiceWakes {
    woken: AtomicBool,
    connection: AtomicWaker,
}

impl Wake for ServiceWakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.connection.wake();
    }
}

impl<F> PollOnWake<F> {
    pub(super) fn new(inner: F, wakes: &Arc<ServiceWakes>) -> Self {
        wakes.woken.store(true, Ordering::Release);
        Self {
            inner,
            wakes: wakes.clone(),
            waker: Waker::from(wakes.clone()),
        }
    }
}

impl<F: Future> Future for PollOnWake<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // Before the check: a wake between the two then wakes the connection.
        this.wakes.connection.register(cx.waker());
        if !this.wakes.woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        this.inner.poll(&mut Context::from_waker(this.waker))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct ConnectionWakes(AtomicUsize);

    impl Wake for ConnectionWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn future_is_polled_at_first_and_after_each_wake_alone() {
        let connection = Arc::new(ConnectionWakes::default());
        let waker = Waker::from(connection.clone());
        let mut cx = Context::from_waker(&waker);
        let (kept, polls) = (Mutex::new(None::<Waker>), AtomicUsize::new(0));
        let wakes = Arc::default();
        for round in 0..2 {
            polls.store(0, Ordering::Relaxed);
            let mut served = PollOnWake::new(
                poll_fn(|cx| {
                    *kept.lock() = Some(cx.waker().clone());
                    match polls.fetch_add(1, Ordering::Relaxed) {
                        1 => Poll::Ready(()),
                        _ => Poll::Pending,
                    }
                }),
                &wakes,
            );
            for _ in 0..3 {
                assert!(Pin::new(&mut served).poll(&mut cx).is_pending());
            }
            assert_eq!(polls.load(Ordering::Relaxed), 1, "round {round}");
            kept.lock().take().unwrap().wake();
            assert_eq!(connection.0.load(Ordering::Relaxed), round + 1);
            assert!(Pin::new(&mut served).poll(&mut cx).is_ready());
        }
    }

    #[test]
    fn wake_during_the_poll_leads_to_another_poll() {
        let connection = Arc::new(ConnectionWakes::default());
        let waker = Waker::from(connection.clone());
        let mut cx = Context::from_waker(&waker);
        let mut polls = 0;
        let wakes = Arc::default();
        let mut served = PollOnWake::new(
            poll_fn(|cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            }),
            &wakes,
        );
        for _ in 0..2 {
            assert!(Pin::new(&mut served).poll(&mut cx).is_pending());
        }
        assert_eq!(connection.0.load(Ordering::Relaxed), 2);
        assert_eq!(polls, 2);
    }
}
