//! The ports: what weir needs of the world, each a trait that another crate implements. Every session, answer and
//! cancel goes through them, so that replicas can share them later.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::call::Call;
use crate::failure::Failure;
use crate::names::EndpointId;
use crate::principal::{Identity, Principal};

/// A boxed future, as ports return them.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a request shows of its sender, before anything is believed.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The text behind `Bearer `, if there was exactly one `Authorization` header. A secret: never logged.
    pub bearer: Option<Secret<'a>>,
    /// The address the connection comes from, after `trusted_proxies`.
    pub peer: IpAddr,
    /// The endpoint the request is for: tokens are bound to it.
    pub endpoint: &'a EndpointId,
}

/// A borrowed secret that cannot be printed.
#[derive(Clone, Copy)]
pub struct Secret<'a>(&'a str);

impl<'a> Secret<'a> {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The text, for the one who has to check it.
    #[must_use]
    pub fn expose(&self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// Who are you.
pub trait Verifier: Send + Sync {
    /// Checks the evidence.
    ///
    /// # Errors
    /// `Unauthenticated`, or `Unavailable` where the check itself cannot be made. Never a default identity.
    fn verify<'a>(&'a self, evidence: &'a Evidence<'a>) -> Fut<'a, Result<Identity, Failure>>;
}

/// May you.
pub trait Authorizer: Send + Sync {
    /// Whether the principal may make this call.
    ///
    /// # Errors
    /// A refusal. A tool one may not see is refused exactly like an unknown one.
    fn may_call(&self, principal: &Principal, call: &Call) -> Result<(), Failure>;

    /// Which tools of an endpoint the principal sees. Equal answers share rendered pages.
    fn visible(&self, principal: &Principal, endpoint: &EndpointId) -> Visible;
}

/// A visible set, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Visible {
    /// Every tool of the endpoint.
    All,
}

impl Visible {
    /// A fingerprint for cursors and page keys: equal sets have equal ones.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::All => 0,
        }
    }
}

/// How often.
pub trait Limiter: Send + Sync {
    /// Takes what the call costs.
    ///
    /// # Errors
    /// `Limit` with the time to wait.
    fn take(&self, principal: &Principal, call: &Call) -> Result<(), Failure>;
}

/// What was decided, and how it ended; one record each.
pub trait Audit: Send + Sync {
    /// Records the decision on a call. The record's end is written by [`Audit::ended`].
    fn decided(&self, principal: &Principal, call: &Call, allowed: bool);

    /// Records how a call ended: `outcome` is one of a small, fixed set of words.
    fn ended(&self, principal: &Principal, call: &Call, outcome: &'static str, took: Duration);
}

/// A store's own failure: it is unreachable or refused. Its text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("store: {0}")]
pub struct StoreError(pub String);

/// What a record is. Kinds never share ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A legacy client's session.
    Session,
}

/// The full name of a record. The principal comes first: no record is found without its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// Whose it is.
    pub principal: Principal,
    /// What it is.
    pub kind: RecordKind,
    /// Which one.
    pub id: [u8; 16],
}

/// A record as read.
#[derive(Clone, Debug)]
pub struct Record {
    /// Opaque bytes; their codec belongs to whoever wrote them.
    pub value: Bytes,
    /// Changes with every write; for compare-and-set.
    pub version: u64,
}

/// What a write asks of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is there.
    Absent,
    /// This version is there.
    Version(u64),
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It stands, as this version.
    Yes(u64),
    /// Something else was there; nothing changed.
    Conflict,
    /// The owner has as many records of this kind as it may, or the store as many as it holds; nothing changed.
    Full,
}

/// Small opaque values with a time to live, by kind, principal and id.
pub trait Records: Send + Sync {
    /// Reads a record and, where `touch` says so, gives it that time to live from now.
    fn load<'a>(&'a self, key: &'a RecordKey, touch: Option<Duration>) -> Fut<'a, Result<Option<Record>, StoreError>>;

    /// Writes a record.
    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: Expect,
    ) -> Fut<'a, Result<Written, StoreError>>;

    /// Removes a record; says whether it was there.
    fn remove<'a>(&'a self, key: &'a RecordKey) -> Fut<'a, Result<bool, StoreError>>;

    /// How many records of a kind are alive, for the gauge.
    fn count(&self, kind: RecordKind) -> usize;

    /// The records of a kind that expired since the last call, oldest first, so that what hangs on them is torn down.
    fn expired(&self, kind: RecordKind) -> Vec<RecordKey>;
}

/// Something told to every replica, this one included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusMessage {
    /// What it is about.
    pub topic: &'static str,
    /// Opaque bytes.
    pub body: Bytes,
}

/// Told messages, in order per sender.
pub trait Bus: Send + Sync {
    /// Tells every subscriber on every replica. Never blocks; a subscriber that lags loses the oldest and is told so.
    fn publish(&self, message: BusMessage);

    /// Messages of one topic from now on.
    fn subscribe(&self, topic: &'static str) -> tokio::sync::broadcast::Receiver<BusMessage>;
}

/// Names a running replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub [u8; 8]);

/// Small messages to one replica.
pub trait Mailbox: Send + Sync {
    /// This replica's own name.
    fn own(&self) -> &ReplicaId;

    /// Sends; says whether the replica is known to be there.
    fn send<'a>(&'a self, to: &'a ReplicaId, message: BusMessage) -> Fut<'a, Result<bool, StoreError>>;

    /// The messages to this replica. There is one receiver: the second call gives `None`.
    fn receive(&self) -> Option<tokio::sync::mpsc::Receiver<BusMessage>>;
}

/// "At most one replica does this now."
pub trait Lease: Send + Sync {
    /// Takes or extends a lease; says whether this replica holds it.
    fn take<'a>(&'a self, name: &'a str, ttl: Duration) -> Fut<'a, Result<bool, StoreError>>;

    /// Gives it back early.
    fn release<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), StoreError>>;
}

/// Shared counters with a time to live: quotas.
pub trait Counters: Send + Sync {
    /// Adds and returns the new value; the counter falls away `ttl` after its first use.
    fn add<'a>(&'a self, name: &'a str, amount: u64, ttl: Duration) -> Fut<'a, Result<u64, StoreError>>;
}

/// Outbound credentials, sealed at rest.
pub trait Vault: Send + Sync {
    /// Reads a secret of a principal.
    fn open<'a>(&'a self, principal: &'a Principal, name: &'a str) -> Fut<'a, Result<Option<Bytes>, StoreError>>;

    /// Keeps a secret of a principal.
    fn keep<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a str,
        secret: Bytes,
        ttl: Duration,
    ) -> Fut<'a, Result<(), StoreError>>;

    /// Forgets a secret.
    fn forget<'a>(&'a self, principal: &'a Principal, name: &'a str) -> Fut<'a, Result<(), StoreError>>;
}

/// Fetches a document by URL for whoever may not open sockets: bounded, without redirects.
pub trait Fetch: Send + Sync {
    /// The body of a 200 answer, at most `limit` bytes.
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut` or `BadAnswer`.
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> Fut<'a, Result<Bytes, Failure>>;
}

/// The time. Sleeps are tokio's, whose clock tests can pause.
pub trait Clock: Send + Sync {
    /// Time since a fixed point; never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall-clock time, for what leaves the process.
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
