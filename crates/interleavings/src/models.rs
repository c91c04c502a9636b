//! The models. Each returns if its promise holds in every order, and panics in the first in which it
//! does not; a thread that waits forever is such an order.

pub mod byte_budget_models;
pub mod event_place_models;
pub mod in_flight_models;
pub mod wake_models;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use loom::future::block_on;
use loom::thread::{JoinHandle, spawn};

use crate::in_every_order;

/// Polls a future once and drops it: a request that leaves while it waits.
fn poll_and_drop<F: Future>(future: F) {
    let mut future = pin!(future);
    block_on(poll_fn(|cx| {
        drop(future.as_mut().poll(cx));
        Poll::Ready(())
    }));
}

/// Waits for threads to end.
fn join_all<const N: usize>(threads: [JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("the thread has not panicked");
    }
}
