//! The messages between a process and its successor while both run: each a line of JSON.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_core::content_version::ContentVersion;
use weir_core::instant::millis;
use weir_core::names::EndpointId;
use weir_core::network::SenderNetwork;
use weir_core::port::{KeptTask, RecordKey, StoredRecord, StreamKey, WriteCondition, WriteOutcome};
use weir_core::{Principal, SessionKey};
use weir_front::MovedSession;
use weir_store::{MovedEvent, MovedLog, MovedRecord, MovedStream, MovedTask};

/// A message. The predecessor sends the first six kinds first; the tasks come before the upstreams.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HandoverMessage {
    /// A legacy session.
    Record(WireRecord),
    /// The events that can be replayed in a session.
    Log(WireLog),
    /// The subscriptions of a session, and other parts of its state.
    Session(WireSession),
    /// A session or a child process of an upstream. The descriptors of a process come on a socket
    /// of their own, before this. After the end of the moved state: a later task in one of them.
    Upstream {
        id: String,
        session: Base64Bytes,
        has_descriptors: bool,
    },
    /// A task in the task book.
    Task(WireTask),
    /// The end of the moved state.
    Complete,
    /// A request to the records, after they have moved to the successor.
    Request { number: u64, request: RecordRequest },
    /// The reply to a request.
    Reply { number: u64, reply: RecordReply },
    /// A change of a replay log, in a call that runs on in the predecessor.
    LogChange(LogChange),
    /// A message of the bus.
    Bus { topic: String, body: Base64Bytes },
    /// The predecessor has kept its last audit records, and ends.
    Ended {
        calls: Option<String>,
        refusals: Option<String>,
    },
}

/// Bytes, in base64url.
#[derive(Clone)]
pub(super) struct Base64Bytes(pub(super) Bytes);

impl std::fmt::Debug for Base64Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64URL_NOPAD
            .decode(text.as_bytes())
            .map(|bytes| Self(bytes.into()))
            .map_err(serde::de::Error::custom)
    }
}

/// The 16 bytes of an id, in base64url.
#[derive(Clone, Copy)]
pub(super) struct WireId([u8; 16]);

impl std::fmt::Debug for WireId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WireId").finish_non_exhaustive()
    }
}

impl Serialize for WireId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Base64Bytes(Bytes::copy_from_slice(&self.0)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WireId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Base64Bytes(bytes) = Base64Bytes::deserialize(deserializer)?;
        bytes[..]
            .try_into()
            .map(Self)
            .map_err(|_| serde::de::Error::custom("an id has 16 bytes"))
    }
}

/// The full name of a session's record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WireKey {
    owner: OwnerName,
    id: WireId,
}

impl WireKey {
    pub(super) fn of(key: &RecordKey) -> Self {
        Self {
            owner: owner_name(&key.principal),
            id: WireId(key.id),
        }
    }

    pub(super) fn key(&self) -> RecordKey {
        RecordKey {
            principal: owner(self.owner.as_ref()),
            id: self.id.0,
        }
    }
}

/// A session's record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireRecord {
    key: WireKey,
    value: Base64Bytes,
    version: u64,
    /// The time until it expires, in milliseconds.
    left: u64,
}

impl WireRecord {
    pub(super) fn of(record: MovedRecord) -> Self {
        let (key, left) = (WireKey::of(&record.key), millis(record.left));
        Self {
            key,
            value: Base64Bytes(record.value),
            version: record.version,
            left,
        }
    }

    pub(super) fn record(self) -> MovedRecord {
        let (key, left) = (self.key.key(), Duration::from_millis(self.left));
        MovedRecord {
            key,
            value: self.value.0,
            version: self.version,
            left,
        }
    }
}

/// The replay log of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireLog {
    session: WireId,
    /// The streams, each with true if it has ended.
    streams: Vec<(u64, bool)>,
    events: Vec<WireEvent>,
    /// The events for clients of streams whose process ends before the answer.
    lost_answers: Vec<(u64, Base64Bytes)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireEvent {
    stream: u64,
    seq: u64,
    /// The event's age, in milliseconds.
    age: u64,
    text: Base64Bytes,
}

impl WireLog {
    pub(super) fn of(log: MovedLog) -> Self {
        let event = |event: MovedEvent| WireEvent {
            stream: event.stream,
            seq: event.seq,
            age: millis(event.age),
            text: Base64Bytes(event.text),
        };
        let events = log.events.into_iter().map(event).collect();
        let running = log.streams.iter().filter(|moved| !moved.is_over);
        let lost_answer =
            |moved: &MovedStream| (moved.stream, Base64Bytes(moved.lost_answer.clone()));
        Self {
            session: WireId(log.session.0),
            lost_answers: running.map(lost_answer).collect(),
            streams: log
                .streams
                .iter()
                .map(|moved| (moved.stream, moved.is_over))
                .collect(),
            events,
        }
    }

    pub(super) fn log(self) -> MovedLog {
        let event = |event: WireEvent| MovedEvent {
            stream: event.stream,
            seq: event.seq,
            age: Duration::from_millis(event.age),
            text: event.text.0,
        };
        let events = self.events.into_iter().map(event).collect();
        let mut lost_answers: HashMap<_, _> = self.lost_answers.into_iter().collect();
        let stream = |(stream, is_over)| MovedStream {
            stream,
            is_over,
            lost_answer: lost_answers
                .remove(&stream)
                .map_or_else(Bytes::new, |Base64Bytes(event)| event),
        };
        MovedLog {
            session: SessionKey(self.session.0),
            streams: self.streams.into_iter().map(stream).collect(),
            events,
        }
    }
}

/// The state of a session beside its record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireSession {
    session: WireId,
    subscriptions: Vec<String>,
    /// The versions of the lists that its client knows.
    told_lists: Vec<Option<WireId>>,
    /// The network that opened it, of the anonymous principal: the bytes of its prefix.
    network: Option<Base64Bytes>,
}

impl WireSession {
    pub(super) fn of(session: MovedSession) -> Self {
        let network = session.network.map(|network| match network {
            SenderNetwork::V4(prefix) => Base64Bytes(Bytes::copy_from_slice(&prefix)),
            SenderNetwork::V6(prefix) => Base64Bytes(Bytes::copy_from_slice(&prefix)),
        });
        Self {
            session: WireId(session.key.0),
            subscriptions: session.subscriptions,
            told_lists: session
                .notified_lists
                .iter()
                .map(|list| list.map(|ContentVersion(id)| WireId(id)))
                .collect(),
            network,
        }
    }

    pub(super) fn session(self) -> MovedSession {
        let network = self
            .network
            .and_then(|Base64Bytes(prefix)| match prefix.len() {
                3 => prefix[..].try_into().ok().map(SenderNetwork::V4),
                _ => prefix[..].try_into().ok().map(SenderNetwork::V6),
            });
        let notified_lists = self
            .told_lists
            .into_iter()
            .map(|list| list.map(|WireId(id)| ContentVersion(id)))
            .collect();
        MovedSession {
            key: SessionKey(self.session.0),
            subscriptions: self.subscriptions,
            notified_lists,
            network,
        }
    }
}

/// A request to the records, or to the task book.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordRequest {
    /// Reads a record; `touch` in milliseconds.
    Load { key: WireKey, touch: Option<u64> },
    /// Writes a record over this version; without a version, only if there is no record. `ttl` in
    /// milliseconds.
    Store {
        key: WireKey,
        value: Base64Bytes,
        ttl: u64,
        version: Option<u64>,
    },
    /// Removes a record.
    Remove { key: WireKey },
    /// Reads a task of the task book.
    Task(WireTaskName),
}

impl RecordRequest {
    pub(super) fn store(
        key: &RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> Self {
        let version = match expect {
            WriteCondition::Absent => None,
            WriteCondition::Version(version) => Some(version),
        };
        Self::Store {
            key: WireKey::of(key),
            value: Base64Bytes(value),
            ttl: millis(ttl),
            version,
        }
    }
}

/// The answer to a [`RecordRequest`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordReply {
    /// The record that was read.
    Loaded { value: Base64Bytes, version: u64 },
    /// There is no record.
    Absent,
    /// The record was written, as this version.
    Stored(u64),
    /// The record has another version.
    Conflict,
    /// The owner has its most records.
    OwnerFull,
    /// The store has its most records.
    Full,
    /// True if a record was removed.
    Removed(bool),
    /// The task that was read.
    Task(Option<Box<WireTask>>),
    /// The request failed.
    Failed(String),
}

impl RecordReply {
    pub(super) fn loaded(record: Option<StoredRecord>) -> Self {
        match record {
            Some(record) => Self::Loaded {
                value: Base64Bytes(record.value),
                version: record.version,
            },
            None => Self::Absent,
        }
    }

    pub(super) fn stored(written: WriteOutcome) -> Self {
        match written {
            WriteOutcome::Stored(version) => Self::Stored(version),
            WriteOutcome::Conflict => Self::Conflict,
            WriteOutcome::OwnerFull => Self::OwnerFull,
            WriteOutcome::Full => Self::Full,
        }
    }
}

/// A change of a replay log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogChange {
    /// A stream began.
    Begin {
        stream: WireStream,
        /// The event for its clients if the process ends before the answer.
        lost_answer: Base64Bytes,
    },
    /// An event is kept.
    Keep {
        stream: WireStream,
        seq: u64,
        event: Base64Bytes,
    },
    /// A stream ended.
    End { stream: WireStream },
    /// A session ended.
    Forget { session: WireId },
}

impl LogChange {
    pub(super) fn forget(session: SessionKey) -> Self {
        Self::Forget {
            session: WireId(session.0),
        }
    }

    /// Returns the bytes of its event, for the bound of the queue.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Keep { event, .. } => event.0.len(),
            Self::Begin { lost_answer, .. } => lost_answer.0.len(),
            Self::End { .. } | Self::Forget { .. } => 0,
        }
    }
}

/// A stream of a session.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WireStream {
    session: WireId,
    stream: u64,
}

impl WireStream {
    pub(super) fn of(key: StreamKey) -> Self {
        Self {
            session: WireId(key.session.0),
            stream: key.stream,
        }
    }

    pub(super) fn key(self) -> StreamKey {
        StreamKey {
            session: self.session.key(),
            stream: self.stream,
        }
    }
}

impl WireId {
    pub(super) fn key(self) -> SessionKey {
        SessionKey(self.0)
    }
}

/// Issuer and subject of a principal; absent for the anonymous one.
pub(super) type OwnerName = Option<(String, String)>;

pub(super) fn owner_name(principal: &Principal) -> OwnerName {
    let (issuer, subject) = principal.owner_name()?;
    Some((issuer.to_owned(), subject.to_owned()))
}

pub(super) fn owner(name: Option<&(String, String)>) -> Principal {
    Principal::owner(name.map(|(issuer, subject)| (issuer.as_str(), subject.as_str())))
}

/// The full name of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireTaskName {
    pub(super) owner: OwnerName,
    pub(super) endpoint: String,
    pub(super) name: String,
}

/// A kept task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireTask {
    owner: OwnerName,
    endpoint: String,
    name: String,
    state: Base64Bytes,
    is_settled: bool,
    is_fetched: bool,
    position: u64,
    /// The time until it expires, in milliseconds.
    left: u64,
}

impl WireTask {
    pub(super) fn of(moved: MovedTask) -> Self {
        Self {
            owner: owner_name(&moved.principal),
            endpoint: moved.endpoint.as_str().to_owned(),
            name: moved.task.name.to_string(),
            state: Base64Bytes(moved.task.state),
            is_settled: moved.task.settled,
            is_fetched: moved.is_fetched,
            position: moved.position,
            left: millis(moved.left),
        }
    }

    pub(super) fn task(self) -> MovedTask {
        MovedTask {
            principal: owner(self.owner.as_ref()),
            endpoint: EndpointId::new(&self.endpoint),
            task: KeptTask {
                name: self.name.into(),
                state: self.state.0,
                settled: self.is_settled,
            },
            position: self.position,
            is_fetched: self.is_fetched,
            left: Duration::from_millis(self.left),
        }
    }
}
