//! The port of operators' changes that replicas share.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::port::{BoxFuture, StoreError};

/// The digest of the target of a change. A target has one change at most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeTarget(pub [u8; 32]);

impl fmt::Debug for ChangeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeTarget({:02x}{:02x}...)", self.0[0], self.0[1])
    }
}

/// The version of a change of one target. The greatest is in force on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeVersion {
    /// The time of the operator's action, in milliseconds of the Unix epoch. It is greater than that
    /// of every version that its replica knew.
    pub at: u64,
    /// The replica of the action. It decides between two actions of one millisecond.
    pub replica: [u8; 8],
}

/// A change by an operator, or its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeDraft {
    /// The target.
    pub target: ChangeTarget,
    /// The time of the operator's action, in milliseconds of the Unix epoch.
    pub at: u64,
    /// True if the operator removed the change of this target.
    pub is_removal: bool,
    /// The end of the change, in milliseconds of the Unix epoch.
    pub ends: Option<u64>,
    /// The content, opaque to the store.
    pub body: Bytes,
}

/// The newest change of a target, as all replicas have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedChange {
    /// Its version.
    pub version: ChangeVersion,
    /// True if the operator removed the change of this target.
    pub is_removal: bool,
    /// The end of the change, in milliseconds of the Unix epoch.
    pub ends: Option<u64>,
    /// The content, opaque to the store.
    pub body: Bytes,
}

/// The newest change of each target.
pub type ChangeMap = std::collections::BTreeMap<ChangeTarget, SharedChange>;

/// Operators' changes that replicas share. A change that the store does not have yet is written as
/// soon as it answers.
pub trait SharedChanges: fmt::Debug + Send + Sync {
    /// Makes a change of this replica known to the others. It is the newest of its target.
    ///
    /// # Errors
    /// The store did not answer in time. The change is written later.
    fn publish(&self, draft: ChangeDraft) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Adds a change that was in force in the previous process, with the version of its time. A
    /// newer change of its target wins.
    fn restore(&self, draft: ChangeDraft);

    /// Fetches the changes of the other replicas once.
    ///
    /// # Errors
    /// The store did not answer in time. The changes are fetched as soon as it does.
    fn fetch(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The changes of all replicas, this one included, and each later state.
    fn watch(&self) -> watch::Receiver<Arc<ChangeMap>>;
}
