//! The session stores, which move to the successor. A process uses its own until then. Afterwards
//! it uses the successor's for requests that still come over its old connections.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::Either;
use parking_lot::RwLock;
use tokio::sync::watch;
use weir_core::instant::millis;
use weir_core::port::{
    BoxFuture, ReadyOrBoxFuture, RecordKey, RecordStore, ReplayLog, ReplayedEvents, StoreError,
    StoredRecord, StreamKey, WriteCondition, WriteOutcome,
};
use weir_core::{HandoverArrival, SessionKey};
use weir_front::MovingSessions;
use weir_store::{MemoryRecords, MemoryReplays};

use crate::link::HandoverLink;
use crate::message::{
    Base64Bytes, HandoverMessage, LogChange, RecordReply, RecordRequest, WireKey, WireLog,
    WireRecord, WireStream,
};
use crate::movable_tasks::MovableTasks;

/// The records of sessions.
#[derive(Debug)]
pub struct MovableRecords {
    own: MemoryRecords,
    location: RwLock<RecordsLocation>,
    arrival: HandoverArrival,
}

/// The location of the records.
#[derive(Debug)]
enum RecordsLocation {
    /// In this process.
    Here,
    /// On their way from the predecessor.
    Arriving,
    /// In the successor.
    Moved(Arc<HandoverLink>),
}

impl MovableRecords {
    /// Returns the records of this process. Requests wait until the predecessor's records have
    /// arrived.
    pub fn new(own: MemoryRecords, arrival: HandoverArrival) -> Self {
        let location = if arrival.is_complete() {
            RecordsLocation::Here
        } else {
            RecordsLocation::Arriving
        };
        Self {
            own,
            location: RwLock::new(location),
            arrival,
        }
    }

    /// The records in this process.
    pub fn own(&self) -> &MemoryRecords {
        &self.own
    }

    /// Marks the arrival as complete.
    pub fn complete(&self) {
        let mut location = self.location.write();
        if matches!(&*location, RecordsLocation::Arriving) {
            *location = RecordsLocation::Here;
        }
        drop(location);
        self.arrival.complete();
    }

    /// Waits until the records of the predecessor have arrived here, or it is gone.
    pub(super) async fn wait_for_arrival(&self) {
        self.arrival.wait().await;
    }

    /// Sends all records over the link, and makes every further request there. Returns the number
    /// of records sent.
    pub(super) fn move_to(&self, link: &Arc<HandoverLink>) -> usize {
        // Requests take the same lock, so no request runs in between.
        let mut location = self.location.write();
        let all = self.own.take_all();
        let count = all.len();
        all.into_iter()
            .for_each(|record| link.send(HandoverMessage::Record(WireRecord::of(record))));
        *location = RecordsLocation::Moved(link.clone());
        count
    }
}

impl RecordStore for MovableRecords {
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
    ) -> ReadyOrBoxFuture<'a, Result<Option<StoredRecord>, StoreError>> {
        let link = match &*self.location.read() {
            RecordsLocation::Here => return self.own.load(key, touch),
            RecordsLocation::Arriving => None,
            RecordsLocation::Moved(link) => Some(link.clone()),
        };
        Either::Right(Box::pin(async move {
            let Some(link) = link else {
                self.arrival.wait().await;
                return self.load(key, touch).await;
            };
            let request = RecordRequest::Load {
                key: WireKey::of(key),
                touch: touch.map(millis),
            };
            match link.request(request).await? {
                RecordReply::Loaded {
                    value: Base64Bytes(value),
                    version,
                } => Ok(Some(StoredRecord { value, version })),
                RecordReply::Absent => Ok(None),
                other @ (RecordReply::Stored(_)
                | RecordReply::Conflict
                | RecordReply::OwnerFull
                | RecordReply::Full
                | RecordReply::Removed(_)
                | RecordReply::Task(_)
                | RecordReply::Failed(_)) => Err(unexpected(&other)),
            }
        }))
    }

    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>> {
        let link = match &*self.location.read() {
            RecordsLocation::Here => return self.own.store(key, value, ttl, expect),
            // A new record cannot be among those that arrive.
            RecordsLocation::Arriving if expect == WriteCondition::Absent => {
                return self.own.store(key, value, ttl, expect);
            }
            RecordsLocation::Arriving => None,
            RecordsLocation::Moved(link) => Some(link.clone()),
        };
        Box::pin(async move {
            let Some(link) = link else {
                self.arrival.wait().await;
                return self.store(key, value, ttl, expect).await;
            };
            match link
                .request(RecordRequest::store(key, value, ttl, expect))
                .await?
            {
                RecordReply::Stored(version) => Ok(WriteOutcome::Stored(version)),
                RecordReply::Conflict => Ok(WriteOutcome::Conflict),
                RecordReply::OwnerFull => Ok(WriteOutcome::OwnerFull),
                RecordReply::Full => Ok(WriteOutcome::Full),
                other @ (RecordReply::Loaded { .. }
                | RecordReply::Absent
                | RecordReply::Removed(_)
                | RecordReply::Task(_)
                | RecordReply::Failed(_)) => Err(unexpected(&other)),
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<bool, StoreError>> {
        let link = match &*self.location.read() {
            RecordsLocation::Here => return self.own.remove(key),
            RecordsLocation::Arriving => None,
            RecordsLocation::Moved(link) => Some(link.clone()),
        };
        Box::pin(async move {
            let Some(link) = link else {
                self.arrival.wait().await;
                return self.remove(key).await;
            };
            match link
                .request(RecordRequest::Remove {
                    key: WireKey::of(key),
                })
                .await?
            {
                RecordReply::Removed(was_there) => Ok(was_there),
                other @ (RecordReply::Loaded { .. }
                | RecordReply::Absent
                | RecordReply::Stored(_)
                | RecordReply::Conflict
                | RecordReply::OwnerFull
                | RecordReply::Full
                | RecordReply::Task(_)
                | RecordReply::Failed(_)) => Err(unexpected(&other)),
            }
        })
    }

    fn contains(&self, key: &RecordKey) -> bool {
        self.own.contains(key)
    }

    fn count(&self) -> usize {
        self.own.count()
    }

    fn visit(&self, look: &mut dyn FnMut(&RecordKey, &[u8])) {
        self.own.visit(look);
    }

    fn expired(&self) -> Vec<RecordKey> {
        self.own.expired()
    }
}

fn unexpected(reply: &RecordReply) -> StoreError {
    StoreError(format!("an answer to another request: {reply:?}"))
}

/// Serves a request of the predecessor.
pub(crate) async fn answer(
    records: &MovableRecords,
    tasks: &MovableTasks,
    sessions: &MovingSessions,
    request: RecordRequest,
) -> RecordReply {
    let failed = |error: StoreError| RecordReply::Failed(error.0);
    match request {
        RecordRequest::Load { key, touch } => {
            let found = records
                .load(&key.key(), touch.map(Duration::from_millis))
                .await;
            found.map_or_else(failed, RecordReply::loaded)
        }
        RecordRequest::Store {
            key,
            value,
            ttl,
            version,
        } => {
            let expect = version.map_or(WriteCondition::Absent, WriteCondition::Version);
            let written = records
                .store(&key.key(), value.0, Duration::from_millis(ttl), expect)
                .await;
            written.map_or_else(failed, RecordReply::stored)
        }
        RecordRequest::Remove { key } => {
            let key = key.key();
            let removed = records.remove(&key).await;
            if matches!(removed, Ok(true)) {
                sessions.leave_network(&key);
            }
            removed.map_or_else(failed, RecordReply::Removed)
        }
        RecordRequest::Task(wanted) => tasks.answer(wanted).await,
    }
}

/// The replay logs of sessions. They stay in a process whose calls still write to them, and the
/// successor gets a copy.
#[derive(Debug)]
pub struct MovableReplays {
    own: MemoryReplays,
    predecessor: ArcSwapOption<HandoverLink>,
    successor: ArcSwapOption<HandoverLink>,
    /// Held for writing while the logs are copied: no change comes in between.
    copying: RwLock<()>,
}

impl MovableReplays {
    /// Returns the logs of this process.
    pub fn new(own: MemoryReplays) -> Self {
        Self {
            own,
            predecessor: ArcSwapOption::empty(),
            successor: ArcSwapOption::empty(),
            copying: RwLock::default(),
        }
    }

    /// The logs in this process.
    pub fn own(&self) -> &MemoryReplays {
        &self.own
    }

    /// Sets the link that the changes of the predecessor's logs come over.
    pub(super) fn set_predecessor(&self, link: Option<Arc<HandoverLink>>) {
        self.predecessor.store(link);
    }

    /// Sends a copy of all logs over the link, and every change from now on.
    pub(super) fn copy_to(&self, link: &Arc<HandoverLink>) {
        let _none_changes = self.copying.write();
        self.own
            .copy_all()
            .into_iter()
            .for_each(|log| link.send(HandoverMessage::Log(WireLog::of(log))));
        self.successor.store(Some(link.clone()));
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&MemoryReplays) -> T,
        log_change: impl FnOnce() -> LogChange,
    ) -> T {
        let _changes = self.copying.read();
        let outcome = change(&self.own);
        if let Some(link) = &*self.successor.load() {
            link.change_log(log_change());
        }
        outcome
    }
}

impl ReplayLog for MovableReplays {
    fn begin(&self, key: StreamKey, lost_answer: &dyn Fn() -> Bytes) -> bool {
        self.change(
            |own| own.begin(key, lost_answer),
            || LogChange::Begin {
                stream: WireStream::of(key),
                lost_answer: Base64Bytes(lost_answer()),
            },
        )
    }

    fn append(&self, key: StreamKey, seq: u64, event: Bytes) {
        let copy = event.clone();
        let log_change = || LogChange::Keep {
            stream: WireStream::of(key),
            seq,
            event: Base64Bytes(copy),
        };
        self.change(|own| own.append(key, seq, event), log_change);
    }

    fn end(&self, key: StreamKey) {
        self.change(
            |own| own.end(key),
            || LogChange::End {
                stream: WireStream::of(key),
            },
        );
    }

    fn events_after(
        &self,
        key: StreamKey,
        seq: u64,
    ) -> BoxFuture<'_, Result<Option<ReplayedEvents>, StoreError>> {
        self.own.events_after(key, seq)
    }

    fn watch_events(&self, key: StreamKey) -> Option<watch::Receiver<u64>> {
        self.own.watch_events(key)
    }

    /// A stream that began in the process before a moment ago may be on its way.
    fn recover(&self, key: StreamKey) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let Some(link) = self.predecessor.load_full() else {
                return false;
            };
            link.take_messages_so_far().await;
            self.own.watch_events(key).is_some()
        })
    }

    fn forget(&self, session: SessionKey) {
        self.change(|own| own.forget(session), || LogChange::forget(session));
    }

    fn expire(&self) {
        self.own.expire();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::net::UnixStream;
    use weir_store::ReplayCaps;
    use weir_testkit::FakeClock;

    use super::super::link::next_message;
    use super::*;

    #[tokio::test]
    async fn stream_of_the_process_before_is_known_once_its_messages_so_far_are_taken() {
        let own = MemoryReplays::new(Arc::new(FakeClock::new()), ReplayCaps::default());
        let replays = Arc::new(MovableReplays::new(own));
        let key = StreamKey {
            session: SessionKey([7; 16]),
            stream: 3,
        };
        assert!(!replays.recover(key).await, "there is no process before");
        let (here, there) = UnixStream::pair().unwrap();
        let link = HandoverLink::start(here.into_split().1);
        replays.set_predecessor(Some(link.clone()));
        let recovering = tokio::spawn({
            let replays = replays.clone();
            async move { replays.recover(key).await }
        });
        let (from, _to) = there.into_split();
        let mut lines = BufReader::new(from).lines();
        let asked = next_message(&mut lines).await.unwrap().unwrap();
        let HandoverMessage::Request { number, .. } = asked else {
            panic!("{asked:?}");
        };
        // It was sent before the answer.
        replays.own().begin(key, &Bytes::new);
        link.complete_request(number, RecordReply::Absent);
        assert!(recovering.await.unwrap());
        // Once that process has ended, all its messages are taken.
        let unknown = StreamKey { stream: 4, ..key };
        link.fail_requests();
        assert!(!replays.recover(unknown).await);
    }
}
