//! The state of a lease as this replica last saw it.

use std::sync::Arc;

use weir_core::port::ReplicaId;

/// The state of a lease as this replica last saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseView {
    /// Grows with each answer of the store, and each failure of it.
    pub(crate) version: u64,
    /// The holder by the last answer.
    pub(crate) holder: LeaseHolder,
    /// The error of the store, if it did not answer the last time.
    pub(crate) error: Option<Arc<str>>,
}

/// The holder of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeaseHolder {
    /// The store has not answered yet.
    #[default]
    Unknown,
    /// No replica.
    Free,
    /// This object.
    Own {
        /// Its epoch.
        epoch: u64,
    },
    /// Another replica, or another object of this one.
    Other(LeaseOwner),
}

/// The replica that runs an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseOwner {
    pub(crate) replica: ReplicaId,
    /// The epoch of its lease.
    pub(crate) epoch: u64,
}
