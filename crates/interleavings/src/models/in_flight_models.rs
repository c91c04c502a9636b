//! Permits for requests in flight.

use std::time::Duration;

use crate::in_flight::{InFlightLimit, InFlightPermit, PermitsPerWorker};
use crate::models::{block_on, in_every_order, join_all, poll_and_drop, spawn};

const WAIT: Duration = Duration::from_secs(1);

const ONE_EACH: PermitsPerWorker = PermitsPerWorker {
    without_queue: 1,
    with_queue: 1,
    per_round: 1,
};

fn acquire(limit: &InFlightLimit, most: usize) -> InFlightPermit {
    block_on(limit.acquire(most, WAIT)).expect("a request that waits gets a permit")
}

fn request(limit: &InFlightLimit, most: usize) -> loom::thread::JoinHandle<()> {
    let limit = limit.clone();
    spawn(move || drop(acquire(&limit, most)))
}

fn all_are_free(limit: &InFlightLimit, most: usize) {
    // A round may hold one for a moment.
    let permits: Vec<_> = (0..most).map(|_| acquire(limit, most)).collect();
    drop(permits);
}

/// Each of three requests gets the only permit, and it is free in the end.
pub fn requests_that_wait_get_the_only_permit() {
    in_every_order(|| {
        let limit = InFlightLimit::new(ONE_EACH);
        let held = acquire(&limit, 1);
        let others = [request(&limit, 1), request(&limit, 1)];
        drop(held);
        join_all(others);
        all_are_free(&limit, 1);
    });
}

/// With more permits than are given at once, the rounds give the others.
pub fn requests_that_wait_get_permits_of_rounds() {
    in_every_order(|| {
        let limit = InFlightLimit::new(ONE_EACH);
        let held = acquire(&limit, 2);
        let other = request(&limit, 2);
        drop(held);
        join_all([other]);
        all_are_free(&limit, 2);
    });
}

/// A request in flight that ends later keeps no other waiting while the limit is not reached.
pub fn request_waits_for_no_other_below_the_limit() {
    in_every_order(|| {
        let limit = InFlightLimit::new(ONE_EACH);
        let held = acquire(&limit, 2);
        drop(acquire(&limit, 2));
        drop(held);
        all_are_free(&limit, 2);
    });
}

/// A request that leaves while it waits takes no permit with it, and keeps none from the next.
pub fn request_that_leaves_keeps_no_permit() {
    in_every_order(|| {
        let limit = InFlightLimit::new(ONE_EACH);
        let held = acquire(&limit, 1);
        let leaving = {
            let limit = limit.clone();
            spawn(move || poll_and_drop(limit.acquire(1, WAIT)))
        };
        let other = request(&limit, 1);
        drop(held);
        join_all([leaving, other]);
        all_are_free(&limit, 1);
    });
}
