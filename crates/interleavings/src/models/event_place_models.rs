//! Places in the queue of audit events.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::JoinHandle;

use crate::event_places::EventPlaces;
use crate::models::{in_every_order, join_all, spawn};

/// A queue with so many places.
const LIMIT: usize = 2;

#[derive(Default)]
struct Queue {
    places: EventPlaces,
    /// The events in the channel, which has no room for more than the limit.
    events: AtomicUsize,
}

impl Queue {
    fn put(&self) {
        let before = self.events.fetch_add(1, Ordering::SeqCst);
        assert!(before < LIMIT, "an event with a place found no room");
    }

    fn allow_and_record(&self) {
        if self.places.promise_within(LIMIT) {
            self.places.take_promised();
            self.put();
        }
    }

    fn record(&self) {
        if self.places.take_within(LIMIT, true) {
            self.put();
        }
    }

    fn write(&self) {
        if self.events.load(Ordering::SeqCst) > 0 {
            self.events.fetch_sub(1, Ordering::SeqCst);
            self.places.give_back();
        }
    }
}

fn run(queue: &Arc<Queue>, steps: fn(&Queue)) -> JoinHandle<()> {
    let queue = queue.clone();
    spawn(move || steps(&queue))
}

/// Every promised event finds room, beside others that take places and the writer that frees them.
pub fn promised_event_finds_room() {
    in_every_order(|| {
        let queue = Arc::new(Queue::default());
        let calls = [
            run(&queue, Queue::allow_and_record),
            run(&queue, Queue::record),
        ];
        queue.allow_and_record();
        queue.write();
        join_all(calls);
        let left = queue.events.load(Ordering::SeqCst);
        assert_eq!(queue.places.queued(), left);
        (left..LIMIT).for_each(|_| assert!(queue.places.promise_within(LIMIT), "a place is lost"));
        assert!(!queue.places.promise_within(LIMIT));
    });
}
