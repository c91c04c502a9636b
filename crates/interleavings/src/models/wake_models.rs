//! Futures of a connection that are polled only if they were woken.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::models::{block_on, in_every_order, join_all, spawn};
use crate::poll_on_wake::PollOnWake;
use crate::repoll_on_wake::RepollOnWake;
use crate::sync::{AtomicBool, AtomicWaker, Ordering};

/// What one thread waits for and another does.
#[derive(Default)]
struct Event {
    has_happened: AtomicBool,
    waiting: AtomicWaker,
}

impl Event {
    fn happen(&self) {
        self.has_happened.store(true, Ordering::Release);
        self.waiting.wake();
    }

    fn happened(self: Arc<Self>) -> impl Future<Output = ()> {
        poll_fn(move |cx| {
            self.waiting.register(cx.waker());
            if self.has_happened.load(Ordering::Acquire) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}

fn later() -> (Arc<Event>, loom::thread::JoinHandle<()>) {
    let event = Arc::new(Event::default());
    let happening = event.clone();
    (event, spawn(move || happening.happen()))
}

/// A request of a connection ends when what it waits for has happened, and so does the next one.
pub fn request_of_a_connection_misses_no_wake() {
    in_every_order(|| {
        let wakes = Arc::default();
        for _ in 0..2 {
            let (event, thread) = later();
            block_on(PollOnWake::new(pin!(event.happened()), &wakes));
            join_all([thread]);
        }
    });
}

/// A future that is polled again at once misses no wake of another thread.
pub fn future_that_is_polled_again_misses_no_wake() {
    in_every_order(|| {
        let (event, thread) = later();
        block_on(RepollOnWake::new(pin!(event.happened())));
        join_all([thread]);
    });
}
