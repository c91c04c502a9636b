//! The port of small values that are kept for principals.

use std::time::Duration;

use bytes::Bytes;

use crate::port::replicas::ReplicaId;
use crate::port::{BoxFuture, ReadyOrBoxFuture, StoreError};
use crate::principal::Principal;

/// The full name of a record. The principal comes first: no record is found without its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// The owner.
    pub principal: Principal,
    /// The id.
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
    /// The owner has as many records as it may; no record changed.
    OwnerFull,
    /// The store has as many as it holds; no record changed.
    Full,
}

/// The place of a record among the replicas.
#[derive(Clone, Debug)]
pub enum RecordPlace {
    /// This replica owns the record.
    Here(StoredRecord),
    /// This replica has just taken the record over: it has no other state of the record's subject.
    TakenOver(StoredRecord),
    /// Another live replica owns it: requests about it are answered there.
    Elsewhere(ReplicaId),
    /// The record was removed, has expired, or never existed.
    Gone,
}

/// Small opaque values with a time to live, by principal and id: the sessions of
/// legacy clients.
pub trait RecordStore: std::fmt::Debug + Send + Sync {
    /// Reads a record and, with `touch`, gives it that time to live from now.
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
    ) -> ReadyOrBoxFuture<'a, Result<Option<StoredRecord>, StoreError>>;

    /// Finds the replica that owns a record, which `opened_by` wrote first. If the owner has ended,
    /// this replica takes the record over from the shared store. With `touch` a record that is here
    /// gets that time to live from now.
    ///
    /// A store of one replica owns all its records.
    ///
    /// # Errors
    /// The owner cannot be found out now.
    fn locate<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
        _opened_by: &'a ReplicaId,
    ) -> BoxFuture<'a, Result<RecordPlace, StoreError>> {
        Box::pin(async move {
            let found = self.load(key, touch).await?;
            Ok(found.map_or(RecordPlace::Gone, RecordPlace::Here))
        })
    }

    /// Writes a record.
    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>>;

    /// Removes a record; true if it existed.
    fn remove<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Returns true if this replica has the record, and it has not expired. It needs no wait, and
    /// changes nothing.
    fn contains(&self, key: &RecordKey) -> bool;

    /// The number of live records, for the gauge.
    fn count(&self) -> usize;

    /// Looks at every record that is alive and known here, in no order. Not for the hot path.
    fn visit(&self, look: &mut dyn FnMut(&RecordKey, &[u8]));

    /// The records that expired since the last call, oldest first, so that dependent state is torn
    /// down.
    fn expired(&self) -> Vec<RecordKey>;

    /// The records that another replica took over since the last call: their state here is out of
    /// date, unless this replica took the record back meanwhile, as [`Self::contains`] says. A store
    /// of one replica loses none.
    fn lost(&self) -> Vec<RecordKey> {
        Vec::new()
    }
}
