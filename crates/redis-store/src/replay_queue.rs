//! The queue of events that the shared store has not yet: those of one stream are written together.

use std::collections::{HashMap, VecDeque};
use std::mem;

use bytes::Bytes;
use weir_core::port::StreamKey;

use crate::replay_seal::ReplayField;

/// The largest event that is written. The answer of a stream that lacks one counts as lost.
pub(crate) const MAX_EVENT_BYTES: usize = 8 << 10;
/// Bytes of the events of one stream that the shared store keeps: the oldest are removed.
const MAX_STREAM_BYTES: usize = 64 << 10;
/// Bytes of all events that wait. More are dropped.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Streams that are written, and that have not ended. More are not kept in the shared store.
const MAX_STREAMS: usize = 50_000;

/// A value on its way to the shared store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldValue {
    pub(crate) field: ReplayField,
    pub(crate) value: Bytes,
}

/// The changes of one log that are written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogWrite {
    pub(crate) key: StreamKey,
    pub(crate) values: Vec<FieldValue>,
    /// Events that are removed.
    pub(crate) removed: Vec<u64>,
}

/// The streams of this replica, with what the shared store lacks of each.
#[derive(Debug, Default)]
pub(crate) struct ReplayQueue {
    streams: HashMap<StreamKey, QueuedStream>,
    /// Streams with changes, in the order of the oldest change.
    due: VecDeque<StreamKey>,
    waiting_bytes: usize,
}

#[derive(Debug, Default)]
struct QueuedStream {
    values: Vec<FieldValue>,
    removed: Vec<u64>,
    /// The events that the shared store has or gets, with their sizes.
    kept: VecDeque<(u64, usize)>,
    kept_bytes: usize,
    /// The number of the newest event, kept or not.
    last: u64,
    is_due: bool,
    has_ended: bool,
}

impl ReplayQueue {
    /// Adds a stream; false if there are too many.
    pub(crate) fn begin(&mut self, key: StreamKey, lost_answer: Bytes) -> bool {
        if self.streams.len() >= MAX_STREAMS {
            return false;
        }
        self.streams.insert(key, QueuedStream::default());
        self.add(key, ReplayField::LostAnswer, lost_answer)
    }

    /// Adds an event of a stream that began; false if it is dropped for want of room.
    pub(crate) fn append(&mut self, key: StreamKey, seq: u64, event: Bytes) -> bool {
        let Some(stream) = self.streams.get_mut(&key) else {
            return true;
        };
        stream.last = seq;
        if event.len() > MAX_EVENT_BYTES {
            return true;
        }
        let size = event.len();
        if !self.add(key, ReplayField::Event(seq), event) {
            return false;
        }
        if let Some(stream) = self.streams.get_mut(&key) {
            self.waiting_bytes -= stream.keep(seq, size);
        }
        true
    }

    /// Ends a stream.
    pub(crate) fn end(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        stream.has_ended = true;
        let last = Bytes::copy_from_slice(&stream.last.to_be_bytes());
        self.add(key, ReplayField::End, last);
    }

    /// Takes the changes of at most `most` streams.
    pub(crate) fn take(&mut self, most: usize) -> Vec<LogWrite> {
        let mut writes = Vec::new();
        while writes.len() < most {
            let Some(key) = self.due.pop_front() else {
                break;
            };
            let Some(stream) = self.streams.get_mut(&key) else {
                continue;
            };
            stream.is_due = false;
            let write = LogWrite {
                key,
                values: mem::take(&mut stream.values),
                removed: mem::take(&mut stream.removed),
            };
            self.waiting_bytes -= write.size();
            if stream.has_ended {
                self.streams.remove(&key);
            }
            writes.push(write);
        }
        writes
    }

    /// Adds changes again that could not be written; false if they are dropped for want of room.
    pub(crate) fn put_back(&mut self, write: LogWrite) -> bool {
        if self.waiting_bytes + write.size() > MAX_WAITING_BYTES {
            return false;
        }
        self.waiting_bytes += write.size();
        let has_ended = write.values.iter().any(|one| one.field == ReplayField::End);
        let stream = self.streams.entry(write.key).or_default();
        stream.has_ended |= has_ended;
        stream.values.splice(..0, write.values);
        stream.removed.extend(write.removed);
        if !mem::replace(&mut stream.is_due, true) {
            self.due.push_back(write.key);
        }
        true
    }

    /// The number of streams with changes that wait.
    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// Adds a value. The end of a stream is added though there is no room.
    fn add(&mut self, key: StreamKey, field: ReplayField, value: Bytes) -> bool {
        let is_full = self.waiting_bytes + value.len() > MAX_WAITING_BYTES;
        let Some(stream) = self.streams.get_mut(&key) else {
            return true;
        };
        if is_full && field != ReplayField::End {
            return false;
        }
        self.waiting_bytes += value.len();
        stream.values.push(FieldValue { field, value });
        if !mem::replace(&mut stream.is_due, true) {
            self.due.push_back(key);
        }
        true
    }
}

impl QueuedStream {
    /// Keeps an event, and removes the oldest above the limit. Returns the bytes that wait no more.
    fn keep(&mut self, seq: u64, size: usize) -> usize {
        self.kept.push_back((seq, size));
        self.kept_bytes += size;
        let mut freed = 0;
        while self.kept_bytes > MAX_STREAM_BYTES {
            let Some((oldest, size)) = self.kept.pop_front() else {
                break;
            };
            self.kept_bytes -= size;
            let waits = |one: &FieldValue| one.field == ReplayField::Event(oldest);
            match self.values.iter().position(waits) {
                Some(at) => freed += self.values.remove(at).value.len(),
                None => self.removed.push(oldest),
            }
        }
        freed
    }
}

impl LogWrite {
    fn size(&self) -> usize {
        self.values.iter().map(|one| one.value.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use weir_core::SessionKey;

    use super::*;

    fn key(stream: u64) -> StreamKey {
        StreamKey {
            session: SessionKey([1; 16]),
            stream,
        }
    }

    fn fields(write: &LogWrite) -> Vec<ReplayField> {
        write.values.iter().map(|one| one.field).collect()
    }

    #[test]
    fn changes_of_a_stream_are_taken_together_and_in_order() {
        let mut queue = ReplayQueue::default();
        for stream in [1, 2] {
            assert!(queue.begin(key(stream), Bytes::from_static(b"lost")));
            assert!(queue.append(key(stream), 1, Bytes::from_static(b"one")));
        }
        queue.end(key(1));
        assert!(queue.append(key(9), 1, Bytes::from_static(b"of no stream that began")));
        assert_eq!(queue.len(), 2);
        let taken = queue.take(1);
        let [lost, event, end] = [
            ReplayField::LostAnswer,
            ReplayField::Event(1),
            ReplayField::End,
        ];
        assert_eq!(fields(&taken[0]), [lost, event, end]);
        // What could not be written comes before what follows.
        let second = queue.take(9).remove(0);
        assert!(queue.append(key(2), 2, Bytes::from_static(b"two")));
        assert!(queue.put_back(second));
        queue.end(key(2));
        let taken = queue.take(9);
        assert_eq!(fields(&taken[0]), [lost, event, ReplayField::Event(2), end]);
        assert_eq!((queue.len(), queue.waiting_bytes), (0, 0));
        assert!(queue.streams.is_empty(), "ended streams are forgotten");
    }

    #[test]
    fn streams_and_events_are_bounded() {
        let mut queue = ReplayQueue::default();
        let event = Bytes::from(vec![b'x'; MAX_EVENT_BYTES]);
        assert!(queue.begin(key(1), Bytes::new()));
        let most = (MAX_STREAM_BYTES / MAX_EVENT_BYTES) as u64;
        for seq in 1..=most {
            assert!(queue.append(key(1), seq, event.clone()));
        }
        // Two of the waiting ones give way; a large event is left out.
        assert!(queue.append(key(1), most + 1, event.clone()));
        assert!(queue.append(key(1), most + 2, event.clone()));
        let large = Bytes::from(vec![b'x'; MAX_EVENT_BYTES + 1]);
        assert!(queue.append(key(1), most + 3, large));
        let taken = queue.take(1).remove(0);
        assert_eq!(taken.values.len() as u64, 1 + most);
        assert_eq!(taken.values[1].field, ReplayField::Event(3));
        assert!(taken.removed.is_empty());
        // Those that are written are removed from the shared store.
        assert!(queue.append(key(1), most + 4, event.clone()));
        assert_eq!(queue.take(1)[0].removed, [3]);
        queue.end(key(1));
        let end = queue.take(1).remove(0);
        assert_eq!(end.values[0].value, (most + 4).to_be_bytes().as_slice());
        // Without room for more, ends alone are taken.
        let streams = MAX_WAITING_BYTES / MAX_STREAM_BYTES;
        let mut is_full = false;
        for stream in 0..=streams as u64 {
            queue.begin(key(stream), Bytes::new());
            for seq in 1..=most {
                is_full |= !queue.append(key(stream), seq, event.clone());
            }
        }
        assert!(is_full && queue.waiting_bytes <= MAX_WAITING_BYTES);
        let before = queue.len();
        queue.end(key(0));
        assert_eq!(queue.len(), before);
        let first = queue.take(1).remove(0);
        assert_eq!(
            first.values.last().map(|one| one.field),
            Some(ReplayField::End)
        );
        while !queue.take(100).is_empty() {}
        assert_eq!(queue.waiting_bytes, 0);
    }
}
