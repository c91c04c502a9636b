//! The numbers of frames on the shared channel, by which a replica notices that it missed some.
//!
//! The server of the store keeps no message, and a connection may lose one without an error. So each
//! frame has a number, and each heartbeat announces the last one: a number that is left out, or that
//! was announced and does not arrive, is that of a lost frame.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_core::port::ReplicaId;

/// The last number of each replica's frames.
pub type FrameNumbers = HashMap<ReplicaId, u64>;

/// The most replicas whose numbers are kept. Beyond it those that the registry has forgotten go.
const MAX_SENDERS: usize = 1024;

/// The numbers of the frames of this replica.
#[derive(Debug, Default)]
pub struct SentFrames {
    numbered: AtomicU64,
    ended: AtomicU64,
}

impl SentFrames {
    /// Returns the number of the next frame.
    pub fn next_number(&self) -> u64 {
        self.numbered.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Marks a frame as sent or given up. From now on heartbeats announce it.
    pub fn end(&self, number: u64) {
        self.ended.fetch_max(number, Ordering::Relaxed);
    }

    /// Leaves a number out, for a message that is never sent: the others notice that they lack it.
    pub fn skip(&self) {
        self.end(self.next_number());
    }

    /// The last number that ended.
    pub fn announced(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

/// The numbers of the frames of other replicas that arrived.
#[derive(Debug, Default)]
pub struct ReceivedFrames(Mutex<ReceivedNumbers>);

#[derive(Debug, Default)]
struct ReceivedNumbers {
    last: FrameNumbers,
    /// True once numbers were announced: a replica that is unknown then has begun since.
    knows_all: bool,
}

impl ReceivedFrames {
    /// Takes note of a frame. Returns the number of frames that were lost just before it.
    pub fn note_arrival(&self, sender: ReplicaId, number: u64) -> u64 {
        let mut received = self.0.lock();
        received.raise(sender, number, number.saturating_sub(1))
    }

    /// Takes note of the numbers that heartbeats announced a while ago. Returns the number of frames
    /// that have not arrived.
    pub fn compare(&self, announced: &FrameNumbers) -> u64 {
        let mut received = self.0.lock();
        let missing = announced
            .iter()
            .map(|(sender, number)| received.raise(sender.clone(), *number, *number))
            .sum();
        received.knows_all = true;
        if received.last.len() > MAX_SENDERS {
            received
                .last
                .retain(|sender, _| announced.contains_key(sender));
        }
        missing
    }
}

impl ReceivedNumbers {
    /// Raises the last number of a sender to `number`. Returns how many up to `expected` were
    /// left out. Those of before this replica began do not count.
    fn raise(&mut self, sender: ReplicaId, number: u64, expected: u64) -> u64 {
        let unknown = if self.knows_all { 0 } else { number };
        let last = self.last.entry(sender).or_insert(unknown);
        let missing = expected.saturating_sub(*last);
        *last = number.max(*last);
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ReplicaId = ReplicaId([1; 8]);
    const TWO: ReplicaId = ReplicaId([2; 8]);

    fn announced(number: u64) -> FrameNumbers {
        [(ONE, number)].into()
    }

    #[test]
    fn only_ended_frames_are_announced() {
        let sent = SentFrames::default();
        let (first, second) = (sent.next_number(), sent.next_number());
        assert_eq!((first, second, sent.announced()), (1, 2, 0));
        sent.end(first);
        assert_eq!(sent.announced(), 1);
        sent.skip();
        assert_eq!((sent.announced(), sent.next_number()), (3, 4));
        sent.end(second);
        assert_eq!(sent.announced(), 3);
    }

    #[test]
    fn missing_numbers_are_counted_once() {
        let received = ReceivedFrames::default();
        assert_eq!(received.compare(&announced(7)), 0, "frames of before");
        assert_eq!(received.note_arrival(ONE, 8), 0);
        assert_eq!(received.note_arrival(ONE, 8), 0, "it was sent twice");
        assert_eq!(received.note_arrival(ONE, 11), 2);
        assert_eq!(received.note_arrival(ONE, 10), 0, "it is late");
        assert_eq!(received.compare(&announced(11)), 0);
        assert_eq!(received.compare(&announced(14)), 3);
        assert_eq!(received.compare(&announced(14)), 0);
        assert_eq!(received.note_arrival(ONE, 15), 0);
    }

    #[test]
    fn all_frames_of_a_replica_that_begins_later_are_expected() {
        let received = ReceivedFrames::default();
        assert_eq!(received.note_arrival(ONE, 5), 0, "it began before");
        assert_eq!(received.compare(&announced(5)), 0);
        assert_eq!(received.note_arrival(TWO, 3), 2);
        assert_eq!(received.compare(&[(ReplicaId([3; 8]), 1)].into()), 1);
    }

    #[test]
    fn forgotten_replicas_do_not_add_up() {
        let received = ReceivedFrames::default();
        for number in 0..3 * MAX_SENDERS as u64 {
            received.note_arrival(ReplicaId(number.to_be_bytes()), 1);
            received.compare(&announced(1));
        }
        assert!(received.0.lock().last.len() <= MAX_SENDERS + 1);
    }
}
