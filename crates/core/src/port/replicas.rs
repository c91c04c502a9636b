//! The ports between replicas: messages, leases and shared counters.

use std::time::Duration;

use bytes::Bytes;

use super::{Fut, StoreError};

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
