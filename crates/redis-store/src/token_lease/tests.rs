#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Barrier;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

const NOW: Duration = Duration::from_secs(100);
const SECOND: Duration = Duration::from_secs(1);
const PLAN: LeasePlan = LeasePlan {
    size: 10,
    low_mark: 5,
    pause: Duration::from_millis(200),
    replicas: 4,
};
/// A rate whose requests each ask.
const EXACT: LeasePlan = LeasePlan {
    size: 0,
    low_mark: 0,
    pause: Duration::ZERO,
    replicas: 4,
};

fn some(number: u32) -> NonZeroU32 {
    number.try_into().unwrap()
}

fn lease() -> TokenLease {
    TokenLease::new(Rate {
        count: some(100),
        per: SECOND,
        burst: some(100),
    })
}

fn demand(need: u32, want: u32, is_awaited: bool) -> TokenDemand {
    TokenDemand {
        need,
        want,
        is_awaited,
        owed: 0,
    }
}

fn reply(granted: u32, wait: Duration) -> TokenReply {
    TokenReply { granted, wait }
}

/// A lease with so many tokens.
fn filled(tokens: u32) -> TokenLease {
    let mut lease = lease();
    assert!(lease.order_trip());
    let demand = demand(1, tokens, false);
    assert!(!lease.finish_trip(demand, reply(tokens, Duration::ZERO), &PLAN, NOW));
    lease.low_mark = PLAN.low_mark;
    lease
}

#[test]
fn tokens_that_are_here_are_taken_without_a_trip_and_a_low_mark_orders_the_next() {
    let mut lease = filled(10);
    for _ in 0..5 {
        assert_eq!(lease.take(some(1), NOW), LeaseAnswer::Taken);
    }
    assert_eq!(lease.take(some(1), NOW), LeaseAnswer::TakenLow);
    assert!(lease.order_trip());
    assert_eq!(lease.take(some(1), NOW), LeaseAnswer::Taken, "under way");
    assert!(!lease.order_trip());
    // Filled up to the size of a lease, and no further.
    assert_eq!(
        lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW),
        Some(demand(1, 7, false))
    );
    assert!(!lease.finish_trip(demand(1, 7, false), reply(7, Duration::ZERO), &PLAN, NOW));
    assert_eq!(lease.take(some(10), NOW), LeaseAnswer::TakenLow);
    assert_eq!(lease.take(some(1), NOW), LeaseAnswer::Unknown);
}

#[test]
fn one_trip_brings_the_tokens_of_all_that_wait() {
    let mut lease = lease();
    let mut receivers: Vec<_> = (0..4).map(|_| lease.enqueue(some(3))).collect();
    drop(receivers.remove(2));
    assert!(lease.order_trip());
    assert_eq!(
        lease.begin_trip(&EXACT, TripPurpose::Tokens, NOW),
        Some(demand(3, 9, true))
    );
    let late = lease.enqueue(some(2));
    // The late one needs a further trip: this one was not refused anything.
    assert!(lease.finish_trip(demand(3, 9, true), reply(9, Duration::ZERO), &EXACT, NOW));
    for receiver in &mut receivers {
        assert_eq!(receiver.try_recv(), Ok(Ok(())));
    }
    assert_eq!(
        lease.begin_trip(&EXACT, TripPurpose::Tokens, NOW),
        Some(demand(2, 2, true))
    );
    drop(late);
    assert!(!lease.finish_trip(demand(2, 2, true), reply(2, Duration::ZERO), &EXACT, NOW));
    assert_eq!(lease.take(some(2), NOW), LeaseAnswer::Taken, "not used");
}

#[test]
fn refusal_is_remembered_until_its_end_and_for_its_cost_alone() {
    let mut lease = lease();
    let mut costly = lease.enqueue(some(50));
    let mut cheap = lease.enqueue(some(2));
    assert!(lease.order_trip());
    let first = lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW).unwrap();
    assert_eq!(first, demand(50, 62, true));
    let wait = Duration::from_millis(400);
    assert!(
        lease.finish_trip(first, reply(0, wait), &PLAN, NOW),
        "for the cheap one"
    );
    assert_eq!(costly.try_recv(), Ok(Err(wait)));
    assert_eq!(cheap.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(lease.take(some(50), NOW), LeaseAnswer::Refused(wait));
    let second = lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW).unwrap();
    assert_eq!(second, demand(2, 12, true));
    // The bucket is empty now: no request asks again before the pause is over.
    assert!(!lease.finish_trip(second, reply(3, Duration::from_millis(1)), &PLAN, NOW));
    assert_eq!(cheap.try_recv(), Ok(Ok(())));
    assert_eq!(lease.take(some(1), NOW), LeaseAnswer::Taken);
    for millis in [0, 199] {
        let now = NOW + Duration::from_millis(millis);
        let left = PLAN.pause - Duration::from_millis(millis);
        assert_eq!(lease.take(some(1), now), LeaseAnswer::Refused(left));
    }
    assert_eq!(lease.take(some(1), NOW + PLAN.pause), LeaseAnswer::Unknown);
}

#[test]
fn failed_trip_leaves_the_decisions_to_the_local_share() {
    let mut lease = lease();
    let mut receivers: Vec<_> = (0..50).map(|_| lease.enqueue(some(1))).collect();
    assert!(lease.order_trip());
    lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW).unwrap();
    // Requests that stopped waiting.
    receivers.drain(..20);
    assert_eq!(lease.fail_trip(4, NOW), 30);
    let decisions = receivers.iter_mut().map(oneshot::Receiver::try_recv);
    let granted = decisions.filter(|decision| *decision == Ok(Ok(()))).count();
    assert_eq!(granted, 25, "a quarter of the burst");
    assert!(lease.take_alone(some(1), 4, NOW).is_err());
    assert!(lease.order_trip());
}

/// A request whose time is over just as its trip fails pays once, whichever of the two decides.
#[test]
fn request_that_stops_waiting_as_its_trip_fails_takes_one_token() {
    for _ in 0..2000 {
        let mut lease = lease();
        let mut receiver = lease.enqueue(some(1));
        assert!(lease.order_trip());
        let lease = Mutex::new(lease);
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                lease.lock().fail_trip(4, NOW);
            });
            start.wait();
            receiver.close();
            if receiver.try_recv().is_err() {
                let decision = lease.lock().take_unanswered(some(1), 4, NOW);
                assert_eq!(decision, Ok(()));
            }
        });
        let mut lease = lease.into_inner();
        let alone = (0..100).filter(|_| lease.take_alone(some(1), 4, NOW).is_ok());
        assert_eq!(alone.count(), 24, "of a quarter of the burst");
    }
}

#[test]
fn idle_tokens_are_given_up_and_used_ones_stay() {
    let mut lease = filled(10);
    assert_eq!(lease.take(some(1), NOW), LeaseAnswer::Taken);
    assert_eq!(lease.give_up_idle(NOW - SECOND), 0);
    assert!(lease.order_trip());
    assert_eq!(lease.give_up_idle(NOW), 0, "a trip is under way");
    let demand = lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW).unwrap();
    assert!(!lease.finish_trip(demand, reply(0, SECOND), &PLAN, NOW));
    assert_eq!(lease.give_up_idle(NOW), 9);
    assert!(!lease.has_tokens());
}

#[test]
fn cost_above_the_burst_takes_a_full_bucket() {
    let mut lease = lease();
    let mut receiver = lease.enqueue(some(5000));
    assert!(lease.order_trip());
    let demand = lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW).unwrap();
    assert_eq!((demand.need, demand.want), (100, 100));
    assert!(!lease.finish_trip(demand, reply(100, Duration::ZERO), &PLAN, NOW));
    assert_eq!(receiver.try_recv(), Ok(Ok(())));
}

#[test]
fn tokens_of_an_outage_are_paid_by_the_next_trip_before_requests_get_any() {
    let mut lease = lease();
    for _ in 0..20 {
        assert!(lease.take_alone(some(1), 4, NOW).is_ok());
    }
    // Its trip may have run.
    assert!(lease.take_unanswered(some(1), 4, NOW).is_ok());
    assert!(lease.order_trip());
    let look = lease.begin_trip(&EXACT, TripPurpose::Look, NOW).unwrap();
    assert_eq!((look.want, look.owed), (0, 0));
    assert!(!lease.finish_trip(look, reply(0, Duration::ZERO), &EXACT, NOW));
    let mut receivers = [lease.enqueue(some(1)), lease.enqueue(some(1))];
    assert!(lease.order_trip());
    let trip = lease.begin_trip(&EXACT, TripPurpose::Tokens, NOW).unwrap();
    assert_eq!((trip.need, trip.want, trip.owed), (1, 22, 20));
    assert!(!lease.finish_trip(trip, reply(15, SECOND), &EXACT, NOW));
    for receiver in &mut receivers {
        assert_eq!(receiver.try_recv(), Ok(Err(SECOND)));
    }
    // The rest is owed still.
    assert!(lease.order_trip());
    let trip = lease.begin_trip(&EXACT, TripPurpose::Tokens, NOW).unwrap();
    assert_eq!((trip.want, trip.owed), (5, 5));
    assert!(!lease.finish_trip(trip, reply(5, Duration::ZERO), &EXACT, NOW));
    assert!(!lease.has_tokens());
}

#[test]
fn outage_gives_no_client_its_burst_again() {
    let mut lease = lease();
    assert!(lease.order_trip());
    let first = lease.begin_trip(&PLAN, TripPurpose::Tokens, NOW).unwrap();
    assert!(!lease.finish_trip(first, reply(first.want, Duration::ZERO), &PLAN, NOW));
    assert_eq!(first.want, 10);
    let alone = (0..100).filter(|_| lease.take_alone(some(1), 4, NOW).is_ok());
    assert_eq!(
        alone.count(),
        15,
        "a quarter of the burst, without the lease"
    );
}
