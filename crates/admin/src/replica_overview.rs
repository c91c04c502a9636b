//! The port to the replicas that serve the same clients, and to their shared store.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{ReplicaId, ReplicaSeen};

/// The replicas and their shared store, as this replica sees them. No answer takes a trip.
pub trait ReplicaOverview: std::fmt::Debug + Send + Sync {
    /// The name of this replica.
    fn own(&self) -> ReplicaId;

    /// All replicas that were heard of lately, this one included, in no order.
    fn replicas(&self) -> Vec<ReplicaSeen>;

    /// The state of the shared store.
    fn store_state(&self) -> SharedStoreState;

    /// The id of a sealing key that another replica seals with and this one lacks.
    fn missing_key(&self) -> Option<u8>;
}

/// The state of the shared store.
#[derive(Clone, Debug)]
pub struct SharedStoreState {
    /// True if the last commands were answered.
    pub is_connected: bool,
    /// The last error, kept after the store answers again.
    pub last_error: Option<Arc<str>>,
    /// The duration of the last command.
    pub latency: Duration,
    /// The number of writes that wait.
    pub pending_writes: usize,
    /// Settings of the server that may lose sessions.
    pub warnings: Vec<&'static str>,
}
