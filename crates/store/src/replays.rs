//! Replay logs in memory: one queue of events for each session, across its streams, so that its
//! oldest event goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use weir_core::SessionKey;
use weir_core::port::{BoxFuture, Clock, ReplayLog, ReplayedEvents, StoreError, StreamKey};
use weir_core::telemetry::instruments;

use crate::store_operation::StoreOperation;

/// The memory of an event beside its bytes.
const EVENT_OVERHEAD: usize = 96;

static CHANGE: StoreOperation = StoreOperation::new("replays", "change");
static READ: StoreOperation = StoreOperation::new("replays", "read");

/// The limits of the replay logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCaps {
    /// Bytes of all sessions.
    pub total: usize,
    /// Bytes of one session.
    pub per_session: usize,
    /// The longest time that an event is kept.
    pub age: Duration,
}

impl Default for ReplayCaps {
    /// A session's last results, for as long as a client takes to reconnect.
    fn default() -> Self {
        Self {
            total: 128 << 20,
            per_session: 1 << 20,
            age: Duration::from_secs(300),
        }
    }
}

/// Replay logs of this replica.
pub struct MemoryReplays {
    clock: Arc<dyn Clock>,
    total: AtomicUsize,
    per_session: AtomicUsize,
    age_millis: AtomicUsize,
    logs: Mutex<ReplayLogs>,
}

#[derive(Default)]
struct ReplayLogs {
    sessions: HashMap<SessionKey, SessionLog>,
    /// Every event in the order of arrival, by its session. An event that is already gone is
    /// skipped.
    order: VecDeque<(SessionKey, u64)>,
    /// The number of kept events.
    events: usize,
    bytes: usize,
    next: u64,
}

#[derive(Default)]
struct SessionLog {
    events: VecDeque<LoggedEvent>,
    streams: HashMap<u64, StreamLog>,
    bytes: usize,
}

struct LoggedEvent {
    nth: u64,
    stream: u64,
    seq: u64,
    at: Duration,
    text: Bytes,
}

struct StreamLog {
    over: bool,
    /// The event in place of a lost answer; empty once the stream has ended.
    lost_answer: Bytes,
    events: usize,
    moves: watch::Sender<u64>,
}

/// The log of a session on its way to another process.
#[derive(Clone, Debug)]
pub struct MovedLog {
    /// The session.
    pub session: SessionKey,
    /// Its streams.
    pub streams: Vec<MovedStream>,
    /// The kept events of those streams, the oldest first.
    pub events: Vec<MovedEvent>,
}

/// A stream of a [`MovedLog`].
#[derive(Clone, Debug)]
pub struct MovedStream {
    /// Its number.
    pub stream: u64,
    /// True if it has ended.
    pub is_over: bool,
    /// The event for its clients if the process that writes to it ends before the answer.
    pub lost_answer: Bytes,
}

/// An event of a [`MovedLog`].
#[derive(Clone, Debug)]
pub struct MovedEvent {
    /// The stream that it was written on.
    pub stream: u64,
    /// Its number on that stream.
    pub seq: u64,
    /// The time since it was written.
    pub age: Duration,
    /// The event as it was written.
    pub text: Bytes,
}

impl MemoryReplays {
    /// An empty store of logs.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, caps: ReplayCaps) -> Self {
        let replays = Self {
            clock,
            total: AtomicUsize::new(0),
            per_session: AtomicUsize::new(0),
            age_millis: AtomicUsize::new(0),
            logs: Mutex::default(),
        };
        replays.set_caps(caps);
        replays
    }

    /// Changes the caps. Events above lowered caps go with the next event.
    pub fn set_caps(&self, caps: ReplayCaps) {
        self.total.store(caps.total, Ordering::Relaxed);
        self.per_session.store(caps.per_session, Ordering::Relaxed);
        self.age_millis.store(
            usize::try_from(caps.age.as_millis()).unwrap_or(usize::MAX),
            Ordering::Relaxed,
        );
    }

    /// Copies all logs.
    #[must_use]
    pub fn copy_all(&self) -> Vec<MovedLog> {
        let now = self.clock.monotonic();
        let kept = self.logs.lock();
        let moved = |event: &LoggedEvent| {
            let age = now.saturating_sub(event.at);
            MovedEvent {
                stream: event.stream,
                seq: event.seq,
                age,
                text: event.text.clone(),
            }
        };
        let log = |(key, session): (&SessionKey, &SessionLog)| MovedLog {
            session: *key,
            streams: session
                .streams
                .iter()
                .map(|(stream, kept)| MovedStream {
                    stream: *stream,
                    is_over: kept.over,
                    lost_answer: kept.lost_answer.clone(),
                })
                .collect(),
            events: session.events.iter().map(moved).collect(),
        };
        kept.sessions.iter().map(log).collect()
    }

    /// Puts in the log of a session from another process. The caps apply.
    pub fn restore(&self, log: MovedLog) {
        let now = self.clock.monotonic();
        for moved in &log.streams {
            let key = StreamKey {
                session: log.session,
                stream: moved.stream,
            };
            self.begin(key, &|| moved.lost_answer.clone());
        }
        for event in log.events {
            let key = StreamKey {
                session: log.session,
                stream: event.stream,
            };
            self.keep_at(key, event.seq, event.text, now.saturating_sub(event.age));
        }
        for ended in log.streams.iter().filter(|moved| moved.is_over) {
            self.end(StreamKey {
                session: log.session,
                stream: ended.stream,
            });
        }
    }

    fn keep_at(&self, key: StreamKey, seq: u64, text: Bytes, at: Duration) {
        let old = self.oldest_kept();
        let (total, own) = (
            self.total.load(Ordering::Relaxed),
            self.per_session.load(Ordering::Relaxed),
        );
        self.change(|kept| {
            kept.next += 1;
            let (nth, cost) = (kept.next, text.len() + EVENT_OVERHEAD);
            let Some(session) = kept.sessions.get_mut(&key.session) else {
                return;
            };
            let Some(stream) = session.streams.get_mut(&key.stream) else {
                return;
            };
            stream.events += 1;
            stream.moves.send_modify(|moves| *moves += 1);
            session.events.push_back(LoggedEvent {
                nth,
                stream: key.stream,
                seq,
                at,
                text,
            });
            session.bytes += cost;
            kept.bytes += cost;
            kept.events += 1;
            kept.order.push_back((key.session, nth));
            while kept
                .sessions
                .get(&key.session)
                .is_some_and(|session| session.bytes > own)
            {
                kept.drop_oldest(&key.session);
            }
            kept.shrink(|kept, event| kept.bytes > total || event.at < old);
        });
    }

    /// Runs a change, and reports the change in bytes to the metric.
    fn change<T>(&self, change: impl FnOnce(&mut ReplayLogs) -> T) -> T {
        let (outcome, moved) = CHANGE.time(|| {
            let mut kept = self.logs.lock();
            let before = kept.bytes;
            let outcome = change(&mut kept);
            kept.compact();
            (outcome, kept.bytes as i64 - before as i64)
        });
        if moved != 0 {
            instruments().replay_bytes.add(moved, &[]);
        }
        outcome
    }

    fn oldest_kept(&self) -> Duration {
        let age = Duration::from_millis(self.age_millis.load(Ordering::Relaxed) as u64);
        self.clock.monotonic().saturating_sub(age)
    }
}

impl std::fmt::Debug for MemoryReplays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryReplays")
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl ReplayLogs {
    /// Removes the oldest event of a session.
    fn drop_oldest(&mut self, key: &SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(event) = session.events.pop_front() else {
            return;
        };
        let cost = event.text.len() + EVENT_OVERHEAD;
        session.bytes -= cost;
        self.bytes -= cost;
        self.events -= 1;
        if let Some(stream) = session.streams.get_mut(&event.stream) {
            stream.events -= 1;
            if stream.over && stream.events == 0 {
                session.streams.remove(&event.stream);
            }
        }
        self.remove_if_empty(key);
    }

    fn remove_if_empty(&mut self, key: &SessionKey) {
        if self
            .sessions
            .get(key)
            .is_some_and(|session| session.streams.is_empty())
        {
            self.sessions.remove(key);
        }
    }

    /// Removes the oldest events of all sessions while `unwanted` is true for the first.
    fn shrink(&mut self, unwanted: impl Fn(&Self, &LoggedEvent) -> bool) {
        while let Some((key, nth)) = self.order.front().copied() {
            let first = self
                .sessions
                .get(&key)
                .and_then(|session| session.events.front());
            match first.filter(|event| event.nth <= nth) {
                None => drop(self.order.pop_front()),
                Some(event) if unwanted(self, event) => {
                    self.order.pop_front();
                    self.drop_oldest(&key);
                }
                Some(_) => return,
            }
        }
    }

    /// Removes the items of gone events from `order` if there are too many; it never holds more than
    /// twice as many items as there are events, and 64.
    fn compact(&mut self) {
        if self.order.len() <= 2 * self.events + 64 {
            return;
        }
        let sessions = &self.sessions;
        self.order.retain(|(key, nth)| {
            let first = sessions.get(key).and_then(|session| session.events.front());
            first.is_some_and(|event| event.nth <= *nth)
        });
    }
}

impl ReplayLog for MemoryReplays {
    fn begin(&self, key: StreamKey, lost_answer: &dyn Fn() -> Bytes) -> bool {
        if self.per_session.load(Ordering::Relaxed) <= EVENT_OVERHEAD {
            return false;
        }
        let lost_answer = lost_answer();
        self.change(|kept| {
            let stream = StreamLog {
                over: false,
                lost_answer,
                events: 0,
                moves: watch::Sender::new(0),
            };
            kept.sessions
                .entry(key.session)
                .or_default()
                .streams
                .insert(key.stream, stream);
        });
        true
    }

    fn append(&self, key: StreamKey, seq: u64, text: Bytes) {
        self.keep_at(key, seq, text, self.clock.monotonic());
    }

    fn end(&self, key: StreamKey) {
        self.change(|kept| {
            let Some(session) = kept.sessions.get_mut(&key.session) else {
                return;
            };
            let Some(stream) = session.streams.get_mut(&key.stream) else {
                return;
            };
            stream.over = true;
            stream.lost_answer = Bytes::new();
            stream.moves.send_modify(|moves| *moves += 1);
            if stream.events == 0 {
                session.streams.remove(&key.stream);
            }
            kept.remove_if_empty(&key.session);
        });
    }

    fn events_after(
        &self,
        key: StreamKey,
        seq: u64,
    ) -> BoxFuture<'_, Result<Option<ReplayedEvents>, StoreError>> {
        let found = READ.time(|| {
            let kept = self.logs.lock();
            let session = kept.sessions.get(&key.session)?;
            let stream = session.streams.get(&key.stream)?;
            let own = session
                .events
                .iter()
                .filter(|event| event.stream == key.stream && event.seq > seq);
            Some(ReplayedEvents {
                events: own.map(|event| (event.seq, event.text.clone())).collect(),
                is_ended: stream.over,
            })
        });
        Box::pin(std::future::ready(Ok(found)))
    }

    fn watch_events(&self, key: StreamKey) -> Option<watch::Receiver<u64>> {
        let kept = self.logs.lock();
        kept.sessions
            .get(&key.session)?
            .streams
            .get(&key.stream)
            .map(|stream| stream.moves.subscribe())
    }

    fn forget(&self, session: SessionKey) {
        self.change(|kept| {
            if let Some(gone) = kept.sessions.remove(&session) {
                kept.bytes -= gone.bytes;
                kept.events -= gone.events.len();
            }
        });
    }

    fn expire(&self) {
        let old = self.oldest_kept();
        self.change(|kept| kept.shrink(|_, event| event.at < old));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_testkit::FakeClock;

    use super::*;

    fn replays(caps: ReplayCaps) -> (Arc<FakeClock>, MemoryReplays) {
        let clock = Arc::new(FakeClock::default());
        (clock.clone(), MemoryReplays::new(clock, caps))
    }

    fn key(session: u8, stream: u64) -> StreamKey {
        StreamKey {
            session: SessionKey([session; 16]),
            stream,
        }
    }

    async fn after(replays: &MemoryReplays, key: StreamKey, seq: u64) -> Option<(Vec<u64>, bool)> {
        let replay = replays.events_after(key, seq).await.unwrap()?;
        Some((
            replay.events.iter().map(|(seq, _)| *seq).collect(),
            replay.is_ended,
        ))
    }

    fn write(replays: &MemoryReplays, key: StreamKey, seqs: std::ops::RangeInclusive<u64>) {
        seqs.for_each(|seq| replays.append(key, seq, Bytes::from(vec![b'x'; 900])));
    }

    // Proves R093, D06.
    #[tokio::test]
    async fn only_the_own_stream_of_the_own_session_is_replayed() {
        let (_, replays) = replays(ReplayCaps::default());
        for (own, seqs) in [(key(1, 1), 1..=3), (key(1, 2), 1..=2), (key(2, 1), 1..=9)] {
            replays.begin(own, &Bytes::new);
            write(&replays, own, seqs);
        }
        replays.end(key(1, 1));
        assert_eq!(
            after(&replays, key(1, 1), 1).await,
            Some((vec![2, 3], true))
        );
        assert_eq!(
            after(&replays, key(1, 2), 0).await,
            Some((vec![1, 2], false))
        );
        assert_eq!(
            after(&replays, key(1, 2), 99).await,
            Some((vec![], false)),
            "ahead of its head"
        );
        assert_eq!(after(&replays, key(2, 2), 0).await, None);
        assert_eq!(after(&replays, key(3, 1), 0).await, None);
        replays.append(key(3, 1), 1, Bytes::new());
        assert_eq!(
            after(&replays, key(3, 1), 0).await,
            None,
            "of no stream that began"
        );
        replays.forget(SessionKey([1; 16]));
        assert_eq!(
            (
                after(&replays, key(1, 1), 0).await,
                after(&replays, key(2, 1), 8).await
            ),
            (None, Some((vec![9], false)))
        );
    }

    #[tokio::test]
    async fn logs_are_bounded_by_session_overall_and_by_age() {
        let caps = ReplayCaps {
            total: 10_000,
            per_session: 5000,
            age: Duration::from_secs(60),
        };
        let (clock, replays) = replays(caps);
        for session in 1..=3 {
            replays.begin(key(session, 1), &Bytes::new);
        }
        write(&replays, key(1, 1), 1..=20);
        assert_eq!(
            after(&replays, key(1, 1), 0).await.unwrap().0,
            [16, 17, 18, 19, 20]
        );
        write(&replays, key(2, 1), 1..=5);
        write(&replays, key(3, 1), 1..=3);
        assert_eq!(
            after(&replays, key(1, 1), 0).await.unwrap().0,
            [19, 20],
            "the oldest of all went"
        );
        assert!(replays.logs.lock().bytes <= 10_000);
        clock.advance(Duration::from_secs(61));
        replays.end(key(3, 1));
        replays.expire();
        assert_eq!(
            after(&replays, key(2, 1), 0).await,
            Some((vec![], false)),
            "it still runs"
        );
        assert_eq!(
            after(&replays, key(3, 1), 0).await,
            None,
            "it ended, and all of it is gone"
        );
        let kept = replays.logs.lock();
        assert_eq!(
            (kept.bytes, kept.order.len(), kept.sessions.len()),
            (0, 0, 2)
        );
    }

    #[tokio::test]
    async fn order_stays_in_proportion_to_the_events_behind_a_quiet_session() {
        let caps = ReplayCaps {
            per_session: 20_000,
            ..ReplayCaps::default()
        };
        let (clock, replays) = replays(caps);
        replays.begin(key(0, 1), &Bytes::new);
        write(&replays, key(0, 1), 1..=3);
        for round in 1..=300 {
            clock.advance(Duration::from_millis(500));
            // A session that loses its oldest events, and many that are forgotten with theirs.
            let brief = (round % 7 + 2) as u8;
            for session in [1, brief] {
                replays.begin(key(session, round), &Bytes::new);
                write(&replays, key(session, round), 1..=10);
                replays.end(key(session, round));
            }
            replays.forget(SessionKey([brief; 16]));
            let kept = replays.logs.lock();
            let events = kept.sessions.values().map(|session| session.events.len());
            assert_eq!(events.sum::<usize>(), kept.events);
            assert!(kept.order.len() <= 2 * kept.events + 64);
        }
        assert_eq!(
            after(&replays, key(0, 1), 0).await,
            Some((vec![1, 2, 3], false))
        );
        assert_eq!(after(&replays, key(1, 300), 8).await.unwrap().0, [9, 10]);
        clock.advance(ReplayCaps::default().age + Duration::from_secs(1));
        replays.expire();
        let kept = replays.logs.lock();
        assert_eq!((kept.bytes, kept.events, kept.order.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn logs_move_with_their_ages_and_their_ends() {
        let (clock, from) = replays(ReplayCaps::default());
        for stream in [1, 2] {
            from.begin(key(1, stream), &Bytes::new);
        }
        write(&from, key(1, 1), 1..=2);
        clock.advance(Duration::from_secs(200));
        write(&from, key(1, 2), 1..=1);
        write(&from, key(1, 1), 3..=3);
        from.end(key(1, 1));
        let (other, to) = replays(ReplayCaps::default());
        other.advance(Duration::from_secs(9000));
        from.copy_all().into_iter().for_each(|log| to.restore(log));
        assert_eq!(after(&to, key(1, 1), 1).await, Some((vec![2, 3], true)));
        assert_eq!(after(&to, key(1, 2), 0).await, Some((vec![1], false)));
        assert_eq!(to.logs.lock().bytes, from.logs.lock().bytes);
        other.advance(Duration::from_secs(101));
        to.expire();
        assert_eq!(
            after(&to, key(1, 1), 0).await,
            Some((vec![3], true)),
            "the old ones went"
        );
    }

    #[tokio::test]
    async fn follower_of_a_stream_is_woken_by_events_and_its_end() {
        let (_, replays) = replays(ReplayCaps::default());
        assert!(replays.watch_events(key(1, 1)).is_none());
        replays.begin(key(1, 1), &Bytes::new);
        let mut moves = replays.watch_events(key(1, 1)).unwrap();
        write(&replays, key(1, 1), 1..=1);
        moves.changed().await.unwrap();
        replays.end(key(1, 1));
        moves.changed().await.unwrap();
        assert_eq!(after(&replays, key(1, 1), 1).await, Some((vec![], true)));
    }
}
