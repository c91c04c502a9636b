//! weir's own locks and wakers, compiled with the atomics, locks and threads of loom. loom runs a model
//! again and again, until every order of the threads' steps was tried that matters and has at most
//! [`MAX_PREEMPTIONS`] interruptions of a thread.
//!
//! The files are those of the other crates, unchanged: `crate::sync` is what differs.

// The unit tests in the files run in their own crates.
#![cfg(not(test))]

#[path = "../../core/src/budget/byte_budget.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models need a part of it")]
mod byte_budget;
#[path = "../../audit/src/audit_service/event_places.rs"]
#[allow(dead_code, reason = "the models need a part of it")]
mod event_places;
#[path = "../../layers/src/in_flight.rs"]
#[allow(
    unreachable_pub,
    irrefutable_let_patterns,
    reason = "its crate has it public, and a runtime that may be absent"
)]
mod in_flight;
#[path = "../../listen/src/poll_on_wake.rs"]
mod poll_on_wake;
#[path = "../../listen/src/repoll_on_wake.rs"]
#[allow(dead_code, reason = "the models need a part of it")]
mod repoll_on_wake;

pub mod models;
mod oneshot;
mod sync;

// What the files use of their own crates.
use weir_core::budget as budget_owner;
use weir_core::{fast, telemetry};

/// The most interruptions of a thread between two steps of its own, in one order. More find little,
/// and take minutes.
pub const MAX_PREEMPTIONS: usize = 2;

/// Runs a model in all orders.
fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    // Made here, because the stacks of a model's threads are small.
    telemetry::instruments();
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(MAX_PREEMPTIONS);
    orders.check(model);
}
