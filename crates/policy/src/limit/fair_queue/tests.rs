#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::task::Waker;

use proptest::prelude::*;

use super::*;

const CAPS: QueueCaps = QueueCaps {
    places: 1,
    waiting: 8,
};

fn party(number: u8) -> QueueParty {
    [number; 16]
}

fn now(turn: QueueAdmission<u8>) -> QueueSlot<u8> {
    match turn {
        QueueAdmission::Now(place) => place,
        QueueAdmission::Wait(_) | QueueAdmission::Full => panic!("no place at once"),
    }
}

fn waits(turn: QueueAdmission<u8>) -> SlotWait<u8> {
    match turn {
        QueueAdmission::Wait(waiting) => waiting,
        QueueAdmission::Now(_) | QueueAdmission::Full => panic!("not in the queue"),
    }
}

/// The current state of a waiting call.
fn look(waiting: &mut SlotWait<u8>) -> Poll<Option<QueueSlot<u8>>> {
    Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
}

// Proves F12.
#[test]
fn slots_go_to_parties_in_turn() {
    let queues = FairQueues::new();
    let mut held = now(queues.enter(&0, party(1), CAPS));
    let mut lines: Vec<(u8, SlotWait<u8>)> = Vec::new();
    for of in [1, 1, 1, 1, 1, 2, 2, 3] {
        lines.push((of, waits(queues.enter(&0, party(of), CAPS))));
    }
    let mut order = Vec::new();
    while !lines.is_empty() {
        drop(held);
        let mut served = Vec::new();
        lines = lines
            .into_iter()
            .filter_map(|(of, mut waiting)| match look(&mut waiting) {
                Poll::Ready(place) => {
                    served.push((of, place.unwrap()));
                    None
                }
                Poll::Pending => Some((of, waiting)),
            })
            .collect();
        let (of, place) = served.pop().unwrap();
        assert!(served.is_empty(), "one place was free");
        order.push(of);
        held = place;
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 1, 1, 1]);
    drop(held);
    assert_eq!(queues.len(), 0, "nothing is left behind");
}

#[test]
fn evicted_call_that_leaves_late_takes_no_position_of_a_newer_one() {
    let caps = QueueCaps {
        places: 1,
        waiting: 2,
    };
    let queues = FairQueues::new();
    let held = now(queues.enter(&0, party(1), caps));
    let first = waits(queues.enter(&0, party(1), caps));
    let evicted = waits(queues.enter(&0, party(1), caps));
    let other = waits(queues.enter(&0, party(2), caps));
    drop((held, first, other));
    assert_eq!(queues.len(), 0);
    let _held = now(queues.enter(&0, party(1), caps));
    let _newer = [(); 2].map(|()| waits(queues.enter(&0, party(1), caps)));
    drop(evicted);
    assert_eq!(queues.load(&0), (1, 2));
}

// Proves F12.
#[test]
fn full_queue_evicts_from_the_longest_subqueue() {
    let queues = FairQueues::new();
    let held = now(queues.enter(&0, party(1), CAPS));
    let mut flood: Vec<_> = (0..8)
        .map(|_| waits(queues.enter(&0, party(1), CAPS)))
        .collect();
    assert!(
        matches!(queues.enter(&0, party(1), CAPS), QueueAdmission::Full),
        "its own line is the longest"
    );
    let mut other = waits(queues.enter(&0, party(2), CAPS));
    assert!(
        matches!(look(flood.last_mut().unwrap()), Poll::Ready(None)),
        "the last of the longest line made room"
    );
    drop(held);
    assert!(look(&mut flood[0]).is_ready(), "whose turn it was");
    assert!(
        matches!(look(&mut other), Poll::Ready(Some(_))),
        "and then the other's, as that place was given back"
    );
}

#[test]
fn cancelled_wait_frees_its_slot() {
    let queues = FairQueues::new();
    let held = now(queues.enter(&0, party(1), CAPS));
    let gone = waits(queues.enter(&0, party(2), CAPS));
    let mut next = waits(queues.enter(&0, party(3), CAPS));
    drop(gone);
    // Given, but not taken any more: it goes to the next.
    let untaken = waits(queues.enter(&0, party(4), CAPS));
    let mut last = waits(queues.enter(&0, party(5), CAPS));
    drop(held);
    let place = look(&mut next);
    assert!(matches!(place, Poll::Ready(Some(_))));
    drop(place);
    assert!(look(&mut last).is_pending());
    drop(untaken);
    assert!(matches!(look(&mut last), Poll::Ready(Some(_))));
    drop((next, last));
    assert_eq!(queues.len(), 0);
}

#[test]
fn raised_permit_limit_admits_waiting_calls() {
    let queues = FairQueues::new();
    let _held = now(queues.enter(&0, party(1), CAPS));
    let mut first = waits(queues.enter(&0, party(1), CAPS));
    let mut second = waits(queues.enter(&0, party(2), QueueCaps { places: 3, ..CAPS }));
    assert!(matches!(look(&mut first), Poll::Ready(Some(_))));
    assert!(matches!(look(&mut second), Poll::Ready(Some(_))));
}

#[test]
fn fair_queues_of_different_keys_are_independent() {
    let queues = FairQueues::new();
    let _one = now(queues.enter(&0, party(1), CAPS));
    let _two = now(queues.enter(&1, party(1), CAPS));
    assert_eq!(queues.len(), 2);
}

#[derive(Clone, Copy, Debug)]
enum QueueStep {
    Enter(u8),
    /// Gives a slot back.
    Leave(usize),
    /// Stops waiting, before or after it got its slot.
    Cancel(usize),
    /// Polls it.
    Look(usize),
}

proptest! {
    /// For all orders of arrivals, departures and cancellations: the cap holds, no slot is lost,
    /// and no call waits while a slot is free.
    #[test]
    fn no_slot_is_lost_or_given_twice(
        places in 1..4usize,
        steps in prop::collection::vec(prop_oneof![
            3 => (0..4u8).prop_map(QueueStep::Enter),
            2 => any::<usize>().prop_map(QueueStep::Leave),
            1 => any::<usize>().prop_map(QueueStep::Cancel),
            2 => any::<usize>().prop_map(QueueStep::Look),
        ], 1..200),
    ) {
        let caps = QueueCaps { places, waiting: 6 };
        let queues = FairQueues::new();
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                QueueStep::Enter(of) => match queues.enter(&0, party(of), caps) {
                    QueueAdmission::Now(place) => held.push(place),
                    QueueAdmission::Wait(turn) => waiting.push(turn),
                    QueueAdmission::Full => prop_assert!(waiting.len() >= 6),
                },
                QueueStep::Leave(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                QueueStep::Cancel(at) if !waiting.is_empty() => drop(waiting.swap_remove(at % waiting.len())),
                QueueStep::Look(at) if !waiting.is_empty() => {
                    let at = at % waiting.len();
                    match look(&mut waiting[at]) {
                        Poll::Ready(place) => {
                            held.extend(place);
                            waiting.swap_remove(at);
                        }
                        Poll::Pending => {}
                    }
                }
                QueueStep::Leave(_) | QueueStep::Cancel(_) | QueueStep::Look(_) => {}
            }
            prop_assert!(held.len() <= places);
        }
        // All calls that still wait are served once the slots come back.
        while !waiting.is_empty() {
            held.clear();
            let before = waiting.len();
            let mut still = Vec::new();
            for mut turn in waiting.drain(..) {
                match look(&mut turn) {
                    Poll::Ready(place) => held.extend(place),
                    Poll::Pending => still.push(turn),
                }
            }
            waiting = still;
            prop_assert!(held.len() <= places);
            prop_assert!(waiting.len() < before, "{before} wait beside a free place");
        }
        held.clear();
        prop_assert_eq!(queues.len(), 0);
    }
}
