//! The ports between replicas: their directory, messages to all, and shared counters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;

use crate::port::{BoxFuture, StoreError};

/// A message to every replica, this one included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusMessage {
    /// The topic.
    pub topic: &'static str,
    /// Opaque bytes.
    pub body: Bytes,
}

/// Broadcast messages, in order per sender.
pub trait MessageBus: fmt::Debug + Send + Sync {
    /// Sends to every subscriber on every replica. Never blocks; a subscriber that lags loses the
    /// oldest and is notified of that.
    fn publish(&self, message: BusMessage);

    /// Messages of one topic from now on.
    fn subscribe(&self, topic: &'static str) -> tokio::sync::broadcast::Receiver<BusMessage>;
}

/// The name of a running replica: random, and another one after each start. Its text is 16
/// hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub [u8; 8]);

impl ReplicaId {
    /// Returns the name with these bytes. `None` if they are not eight.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    /// Reads the text of a name. `None` if it is not 16 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::from_bytes(&HEXLOWER.decode(text.as_bytes()).ok()?)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// A replica as the registry lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSeen {
    /// Its name.
    pub id: ReplicaId,
    /// The `host:port` of its cluster listener.
    pub address: Arc<str>,
    /// The version of weir.
    pub version: Arc<str>,
    /// The digest of its config in force, in hexadecimal digits.
    pub config: Arc<str>,
    /// The ids of the sealing keys that it can open, newest first.
    pub keys: Vec<u8>,
    /// The id of the key that it seals with.
    pub sealing_key: Option<u8>,
    /// False while it lacks a key that another replica seals with: it is not ready then.
    pub opens_all: bool,
    /// True once it ends: it takes no new requests, and others take over its sessions.
    pub is_draining: bool,
    /// The time since it was last heard of.
    pub age: Duration,
}

/// The replicas that serve the same clients, as this replica last saw them. No answer takes a trip.
pub trait ReplicaDirectory: fmt::Debug + Send + Sync {
    /// The name of this replica.
    fn own(&self) -> &ReplicaId;

    /// The address of the cluster listener of another replica. `None` if it has ended, or could not be
    /// reached a moment ago. A replica that drains still has one, for requests about its calls.
    fn address(&self, replica: &ReplicaId) -> Option<Arc<str>>;

    /// True if a replica may answer requests: it can be reached, or is not known here, as one that began
    /// a moment ago. False for this replica.
    fn may_answer(&self, replica: &ReplicaId) -> bool;

    /// The address of a replica, asked for in the shared store if the replica is not known here. From
    /// then on, a replica that is not there cannot answer. Cancel safe.
    fn find_address<'a>(&'a self, replica: &'a ReplicaId) -> BoxFuture<'a, Option<Arc<str>>>;

    /// Takes note that a replica cannot be reached. It counts as ended until it is heard of again.
    fn report_unreachable(&self, replica: &ReplicaId);

    /// All replicas that were heard of lately, this one included, in no order.
    fn replicas(&self) -> Vec<ReplicaSeen>;
}

/// The counting while the store that replicas share does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageCounting {
    /// This replica goes on alone from the last value that it has seen. The shared counter gets the
    /// amount later.
    Own,
    /// The addition fails, and is not made later.
    Fails,
}

/// An addition to a shared counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterAddition<'a> {
    /// The counter.
    pub name: &'a str,
    /// The amount.
    pub amount: u64,
    /// The highest value that the counter may have afterwards. Beyond it, nothing is added.
    pub most: u64,
    /// The life of the counter from its first use on.
    pub ttl: Duration,
}

/// The result of an addition to a shared counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterValue {
    /// The value of the counter now.
    pub value: u64,
    /// False if the counter would have exceeded its highest value.
    pub is_added: bool,
}

/// Shared counters with a time to live: quotas.
pub trait SharedCounters: Send + Sync {
    /// Adds, unless the counter would exceed the highest value of the addition.
    fn add<'a>(
        &'a self,
        addition: CounterAddition<'a>,
        in_outage: OutageCounting,
    ) -> BoxFuture<'a, Result<CounterValue, StoreError>>;
}
