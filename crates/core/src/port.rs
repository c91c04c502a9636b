//! The ports: weir's needs of the outside world, each a trait that another crate implements. Every
//! session, answer and cancellation goes through them, so that replicas can share them later.

mod decisions;
mod document_post;
mod replay_log;
mod task_book;

pub use decisions::{
    Audience, AuditLog, Authorizer, BorrowedSecret, CallAttempt, CallPermission, CallPermit,
    ContentChanges, EndedCall, Evidence, GateDecision, Limiter, OperatorAction, PermitWait,
    SenderEntrance, SenderRejection, Verifier, Visibility,
};
pub use document_post::{DocumentPoster, PostEncoding, PostResponse};
pub use replay_log::{ReplayLog, ReplayedEvents, StreamKey};
pub use task_book::{KeptTask, TaskBook};

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::failure::Failure;
use crate::parked::{ParkedCall, ParkedCallDetails, ParkedId, ParkedReply};
use crate::principal::Principal;

/// A boxed future, as ports return them.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store's own failure: it is unreachable or refused. Its text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("store: {0}")]
pub struct StoreError(pub String);

/// The kind of a record. Kinds never share ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A legacy client's session.
    Session,
}

/// The full name of a record. The principal comes first: no record is found without its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// The owner.
    pub principal: Principal,
    /// The kind.
    pub kind: RecordKind,
    /// The id within the kind.
    pub id: [u8; 16],
}

/// A record as read.
#[derive(Clone, Debug)]
pub struct StoredRecord {
    /// Opaque bytes; their codec belongs to the writer.
    pub value: Bytes,
    /// Changes with every write; for compare-and-set.
    pub version: u64,
}

/// The condition of a write on the stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCondition {
    /// There is no record.
    Absent,
    /// The record has this version.
    Version(u64),
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is stored, as this version.
    Stored(u64),
    /// The condition did not hold; no record changed.
    Conflict,
    /// The owner has as many records of this kind as it may; no record changed.
    OwnerFull,
    /// The store has as many as it holds; no record changed.
    Full,
}

/// Small opaque values with a time to live, by kind, principal and id.
pub trait RecordStore: Send + Sync {
    /// Reads a record and, with `touch`, gives it that time to live from now.
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
    ) -> Fut<'a, Result<Option<StoredRecord>, StoreError>>;

    /// Writes a record.
    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> Fut<'a, Result<WriteOutcome, StoreError>>;

    /// Removes a record; true if it existed.
    fn remove<'a>(&'a self, key: &'a RecordKey) -> Fut<'a, Result<bool, StoreError>>;

    /// The number of live records of a kind, for the gauge.
    fn count(&self, kind: RecordKind) -> usize;

    /// Looks at every record of a kind that is alive and known here, in no order. Not for the hot
    /// path.
    fn visit(&self, kind: RecordKind, look: &mut dyn FnMut(&RecordKey, &[u8]));

    /// The records of a kind that expired since the last call, oldest first, so that dependent
    /// state is torn down.
    fn expired(&self, kind: RecordKind) -> Vec<RecordKey>;
}

/// A message to every replica, this one included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusMessage {
    /// The topic.
    pub topic: &'static str,
    /// Opaque bytes.
    pub body: Bytes,
}

/// Broadcast messages, in order per sender.
pub trait MessageBus: Send + Sync {
    /// Sends to every subscriber on every replica. Never blocks; a subscriber that lags loses the
    /// oldest and is notified of that.
    fn publish(&self, message: BusMessage);

    /// Messages of one topic from now on.
    fn subscribe(&self, topic: &'static str) -> tokio::sync::broadcast::Receiver<BusMessage>;
}

/// The name of a running replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub [u8; 8]);

/// Small messages to one replica.
pub trait ReplicaMailbox: Send + Sync {
    /// This replica's own name.
    fn own(&self) -> &ReplicaId;

    /// Sends; true if the replica is known to run.
    fn send<'a>(
        &'a self,
        to: &'a ReplicaId,
        message: BusMessage,
    ) -> Fut<'a, Result<bool, StoreError>>;

    /// The messages to this replica. There is one receiver: the second call returns no value.
    fn receive(&self) -> Option<tokio::sync::mpsc::Receiver<BusMessage>>;
}

/// "At most one replica does this now."
pub trait ReplicaLease: Send + Sync {
    /// Takes or extends a lease; true if this replica holds it.
    fn take<'a>(&'a self, name: &'a str, ttl: Duration) -> Fut<'a, Result<bool, StoreError>>;

    /// Gives it back early.
    fn release<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), StoreError>>;
}

/// Shared counters with a time to live: quotas.
pub trait SharedCounters: Send + Sync {
    /// Adds and returns the new value; the counter falls away `ttl` after its first use.
    fn add<'a>(
        &'a self,
        name: &'a str,
        amount: u64,
        ttl: Duration,
    ) -> Fut<'a, Result<u64, StoreError>>;
}

/// Outbound credentials, sealed at rest.
pub trait CredentialVault: Send + Sync {
    /// Reads a secret of a principal.
    fn open<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
    ) -> Fut<'a, Result<Option<Bytes>, StoreError>>;

    /// Keeps a secret of a principal.
    fn keep<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
        secret: Bytes,
        ttl: Duration,
    ) -> Fut<'a, Result<(), StoreError>>;

    /// Deletes a secret.
    fn forget<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
    ) -> Fut<'a, Result<(), StoreError>>;
}

/// Calls that wait for input, each for its principal. They hold a connection to their upstream, so
/// they stay on the replica that made them; a client that comes back with one is led there.
pub trait CallParking: Send + Sync {
    /// Keeps a call for a while, under a fresh name, or under the one it was just taken from.
    ///
    /// # Errors
    ///
    /// `Busy`: the principal has as many as it may, or all principals together have. The call is
    /// dropped, which cancels it.
    fn park(
        &self,
        stay: ParkedCallDetails,
        again: Option<ParkedId>,
        parked: ParkedReply,
    ) -> Result<ParkedId, Failure>;

    /// Takes a call out: a name is good once. Unknown, foreign, used and expired ones are all the
    /// same.
    fn take(&self, principal: &Principal, id: ParkedId) -> Option<ParkedReply>;

    /// Drops the calls that are over time: their upstreams receive a cancellation. To be called now
    /// and then.
    fn sweep(&self);

    /// The calls that wait, the oldest first.
    fn waiting(&self) -> Vec<ParkedCall>;

    /// Drops the calls that the predicate selects: their upstreams receive a cancellation. Returns
    /// their number.
    fn stop(&self, which: &dyn Fn(u64, &ParkedCallDetails) -> bool) -> usize;
}

/// Fetches a document by URL, for crates that may not open sockets: bounded in bytes and time,
/// without redirects.
pub trait DocumentFetcher: Send + Sync {
    /// Makes a request and reads its response, with any status. Dropping the future ends the
    /// request.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `TimedOut` or `BadAnswer` (too large): no whole response came.
    fn fetch<'a>(&'a self, ask: FetchRequest<'a>) -> Fut<'a, Result<FetchResponse, Failure>>;
}

/// A request for [`DocumentFetcher`].
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// An absolute `http` or `https` URL.
    pub url: &'a str,
    /// The body of a POST, `application/x-www-form-urlencoded`; without one the request is a GET.
    /// May hold secrets.
    pub form: Option<BorrowedSecret<'a>>,
    /// The whole `Authorization` header, if there is one.
    pub authorization: Option<BorrowedSecret<'a>>,
    /// The most bytes of a body.
    pub limit: usize,
    /// The time for all of it.
    pub timeout: Duration,
    /// The source of the URL: one that an outsider names may reach public addresses only.
    pub url_source: UrlSource,
}

/// The source of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlSource {
    /// The operator's config: any address, also loopback and private ones.
    Operator,
    /// Any other source, such as an upstream's metadata: `https` and public addresses only (C18).
    Outsider,
}

/// The response to a [`DocumentFetcher`].
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// The status of the answer.
    pub status: u16,
    /// The time for which the response may be kept, if its `Cache-Control` has a `max-age`.
    pub max_age: Option<Duration>,
    /// The body.
    pub body: Bytes,
}

/// The time. Sleeps are tokio's, whose clock tests can pause.
pub trait Clock: Send + Sync {
    /// Time since a fixed point; never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall-clock time, for values that leave the process.
    fn wall(&self) -> SystemTime;
}

/// Unguessable bytes.
pub trait Random: Send + Sync {
    /// Fills `buffer`.
    fn fill(&self, buffer: &mut [u8]);
}

/// 16 random bytes: ids.
pub fn random_id(random: &dyn Random) -> [u8; 16] {
    let mut id = [0; 16];
    random.fill(&mut id);
    id
}
