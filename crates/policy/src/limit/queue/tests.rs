#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::task::Waker;

use proptest::prelude::*;

use super::*;

const CAPS: Caps = Caps {
    places: 1,
    waiting: 8,
};

fn party(number: u8) -> Party {
    [number; 16]
}

fn now(turn: Turn<u8>) -> Place<u8> {
    match turn {
        Turn::Now(place) => place,
        Turn::Wait(_) | Turn::Full => panic!("no place at once"),
    }
}

fn waits(turn: Turn<u8>) -> Waiting<u8> {
    match turn {
        Turn::Wait(waiting) => waiting,
        Turn::Now(_) | Turn::Full => panic!("not in the queue"),
    }
}

/// The current state of a waiting call.
fn look(waiting: &mut Waiting<u8>) -> Poll<Option<Place<u8>>> {
    Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn f12_places_go_to_the_lines_in_turn() {
    let queues = Queues::new();
    let mut held = now(queues.enter(&0, party(1), CAPS));
    let mut lines: Vec<(u8, Waiting<u8>)> = Vec::new();
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
fn f12_a_full_queue_turns_the_longest_line_away() {
    let queues = Queues::new();
    let held = now(queues.enter(&0, party(1), CAPS));
    let mut flood: Vec<_> = (0..8)
        .map(|_| waits(queues.enter(&0, party(1), CAPS)))
        .collect();
    assert!(
        matches!(queues.enter(&0, party(1), CAPS), Turn::Full),
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
fn whoever_leaves_the_queue_leaves_nothing_behind() {
    let queues = Queues::new();
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
fn a_reload_brings_places_for_those_who_wait() {
    let queues = Queues::new();
    let _held = now(queues.enter(&0, party(1), CAPS));
    let mut first = waits(queues.enter(&0, party(1), CAPS));
    let mut second = waits(queues.enter(&0, party(2), Caps { places: 3, ..CAPS }));
    assert!(matches!(look(&mut first), Poll::Ready(Some(_))));
    assert!(matches!(look(&mut second), Poll::Ready(Some(_))));
}

#[test]
fn things_have_places_of_their_own() {
    let queues = Queues::new();
    let _one = now(queues.enter(&0, party(1), CAPS));
    let _two = now(queues.enter(&1, party(1), CAPS));
    assert_eq!(queues.len(), 2);
}

#[derive(Clone, Copy, Debug)]
enum Step {
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
    fn no_place_is_lost_and_none_is_given_twice(
        places in 1..4usize,
        steps in prop::collection::vec(prop_oneof![
            3 => (0..4u8).prop_map(Step::Enter),
            2 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Cancel),
            2 => any::<usize>().prop_map(Step::Look),
        ], 1..200),
    ) {
        let caps = Caps { places, waiting: 6 };
        let queues = Queues::new();
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Enter(of) => match queues.enter(&0, party(of), caps) {
                    Turn::Now(place) => held.push(place),
                    Turn::Wait(turn) => waiting.push(turn),
                    Turn::Full => prop_assert!(waiting.len() >= 6),
                },
                Step::Leave(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                Step::Cancel(at) if !waiting.is_empty() => drop(waiting.swap_remove(at % waiting.len())),
                Step::Look(at) if !waiting.is_empty() => {
                    let at = at % waiting.len();
                    match look(&mut waiting[at]) {
                        Poll::Ready(place) => {
                            held.extend(place);
                            waiting.swap_remove(at);
                        }
                        Poll::Pending => {}
                    }
                }
                Step::Leave(_) | Step::Cancel(_) | Step::Look(_) => {}
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
