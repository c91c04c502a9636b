//! Records that replicas share: each has one owner, and the memory of the owner is the authority.
//! From a copy in the shared store another replica takes the record over once the owner has ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use weir_core::port::{
    BoxFuture, ReadyOrBoxFuture, RecordKey, RecordPlace, RecordStore, ReplicaId, StoreError,
    StoredRecord, WriteCondition, WriteOutcome,
};

use crate::record_claims::RecordClaims;
use crate::record_writer::RecordWriter;
use crate::remembered_owners::RememberedOwners;
use crate::replica_registry::ReplicaRegistry;
use crate::write_queue::RecordEnd;

/// The records of this replica, over a store in its memory. The latter is read first, and is the
/// only one that is read for a record that is here.
pub struct SharedRecords {
    local: Arc<dyn RecordStore>,
    writer: Arc<RecordWriter>,
    claims: RecordClaims,
}

impl SharedRecords {
    /// Records in `local`, written by `writer`.
    pub(crate) fn new(
        local: Arc<dyn RecordStore>,
        writer: Arc<RecordWriter>,
        registry: Arc<ReplicaRegistry>,
        owners: Arc<RememberedOwners>,
    ) -> Self {
        let claims = RecordClaims::new(writer.clone(), registry, local.clone(), owners);
        Self {
            local,
            writer,
            claims,
        }
    }

    /// Waits until all writes have reached the shared store; returns the number of those that are
    /// left at the time limit.
    pub async fn flush(&self, limit: Duration) -> usize {
        self.writer.flush(limit).await
    }

    /// The number of writes that wait for the shared store.
    pub fn pending_writes(&self) -> usize {
        self.writer.pending()
    }

    async fn load_touched(
        &self,
        key: &RecordKey,
        touch: Option<Duration>,
    ) -> Result<Option<StoredRecord>, StoreError> {
        let found = self.local.load(key, touch).await?;
        if let (Some(_), Some(ttl)) = (&found, touch) {
            self.writer.touch(key, ttl);
        }
        Ok(found)
    }

    async fn store_both(
        &self,
        key: &RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> Result<WriteOutcome, StoreError> {
        let outcome = self.local.store(key, value.clone(), ttl, expect).await?;
        if let WriteOutcome::Stored(version) = outcome {
            match expect {
                WriteCondition::Absent => {
                    self.writer.save_now(key, &value, ttl).await;
                    // A change meanwhile may have been overtaken by this write.
                    let now = self.local.load(key, None).await?;
                    if now.is_some_and(|now| now.version != version) {
                        self.writer.save_later(key, ttl);
                    }
                }
                WriteCondition::Version(_) => self.writer.save_later(key, ttl),
            }
        }
        Ok(outcome)
    }
}

impl RecordStore for SharedRecords {
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
    ) -> ReadyOrBoxFuture<'a, Result<Option<StoredRecord>, StoreError>> {
        Either::Right(Box::pin(self.load_touched(key, touch)))
    }

    fn locate<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
        opened_by: &'a ReplicaId,
    ) -> BoxFuture<'a, Result<RecordPlace, StoreError>> {
        Box::pin(async move {
            if let Some(record) = self.load_touched(key, touch).await? {
                return Ok(RecordPlace::Here(record));
            }
            let place = self.claims.locate(key, opened_by).await?;
            if matches!(place, RecordPlace::Here(_) | RecordPlace::TakenOver(_)) && touch.is_some()
            {
                self.load_touched(key, touch).await?;
            }
            Ok(place)
        })
    }

    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>> {
        Box::pin(self.store_both(key, value, ttl, expect))
    }

    fn remove<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            if self.local.remove(key).await? {
                self.writer.end_now(key, RecordEnd::Removed).await;
                return Ok(true);
            }
            Ok(self.writer.end_now(key, RecordEnd::Unknown).await)
        })
    }

    fn contains(&self, key: &RecordKey) -> bool {
        self.local.contains(key)
    }

    fn count(&self) -> usize {
        self.local.count()
    }

    fn visit(&self, look: &mut dyn FnMut(&RecordKey, &[u8])) {
        self.local.visit(look);
    }

    fn expired(&self) -> Vec<RecordKey> {
        let expired = self.local.expired();
        expired.iter().for_each(|key| self.writer.end_later(key));
        expired
    }

    fn lost(&self) -> Vec<RecordKey> {
        self.writer.take_lost()
    }
}

impl fmt::Debug for SharedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecords")
            .field("pending_writes", &self.pending_writes())
            .finish_non_exhaustive()
    }
}
