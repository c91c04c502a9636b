//! Budgets of bytes.

use std::time::Duration;

use loom::thread::JoinHandle;

use crate::budget_owner::BudgetOwner;
use crate::byte_budget::ByteBudget;
use crate::models::{block_on, in_every_order, join_all, poll_and_drop, spawn};

const WAIT: Duration = Duration::from_secs(1);

fn budget(limit: usize) -> ByteBudget {
    let budget = ByteBudget::new("bodies");
    budget.set_limit(limit);
    budget
}

fn reservation(budget: &ByteBudget, bytes: usize) -> JoinHandle<()> {
    let budget = budget.clone();
    spawn(move || {
        let taken = block_on(budget.reserve(bytes, WAIT));
        assert!(taken.is_some(), "a reservation that waits gets its bytes");
        assert!(budget.used() <= budget.limit());
    })
}

/// Bytes that are given back reach each reservation that waits for them.
pub fn waiting_reservations_get_returned_bytes() {
    in_every_order(|| {
        let budget = budget(2);
        let held = budget.try_reserve(2);
        let others = [reservation(&budget, 1), reservation(&budget, 2)];
        drop(held);
        join_all(others);
        assert_eq!(budget.used(), 0);
    });
}

/// A higher limit reaches a reservation that waits.
pub fn waiting_reservation_notices_a_higher_limit() {
    in_every_order(|| {
        let budget = budget(1);
        let _held = budget.try_reserve(1);
        let other = reservation(&budget, 1);
        budget.set_limit(2);
        join_all([other]);
    });
}

/// A reservation that is dropped while it waits takes no bytes with it.
pub fn reservation_that_leaves_takes_no_bytes() {
    in_every_order(|| {
        let budget = budget(1);
        let held = budget.try_reserve(1);
        let leaving = {
            let budget = budget.clone();
            spawn(move || poll_and_drop(budget.reserve(1, WAIT)))
        };
        let other = reservation(&budget, 1);
        drop(held);
        join_all([leaving, other]);
        assert_eq!(budget.used(), 0);
    });
}

/// Reservations of one owner on several threads have no more together than its share.
pub fn owner_has_no_more_than_its_share() {
    const OWNER: BudgetOwner = BudgetOwner::Principal([1; 16]);
    in_every_order(|| {
        let budget = budget(4);
        let take = |budget: &ByteBudget| {
            let mut own = budget.empty_of(OWNER);
            (0..2).for_each(|_| _ = own.try_grow(1));
            own
        };
        let other = {
            let budget = budget.clone();
            spawn(move || take(&budget))
        };
        let own = take(&budget);
        let others = other.join().expect("the thread has not panicked");
        assert_eq!(own.bytes() + others.bytes(), budget.used());
        assert_eq!(budget.used(), 3, "three quarters");
        drop((own, others));
        assert_eq!(budget.used(), 0);
    });
}
