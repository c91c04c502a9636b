//! The owners of records of other replicas, as the store named them last.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use quick_cache::sync::Cache;
use weir_core::port::{Clock, ReplicaId};

use crate::record_seal::RecordName;

/// Owners that are remembered.
const MAX_OWNERS: usize = 65_536;
/// The time in use of a remembered owner, without a question to the store.
const OWNER_AGE: Duration = Duration::from_secs(5);
/// The bytes of the name of a record.
const NAME_BYTES: usize = size_of::<RecordName>();
/// The bytes of a record and its owner in the text for another process.
const PAIR_BYTES: usize = NAME_BYTES + size_of::<ReplicaId>();

/// The owners of records of other replicas.
pub(crate) struct RememberedOwners {
    clock: Arc<dyn Clock>,
    owners: Cache<RecordName, RememberedOwner>,
}

/// The owner of a record.
#[derive(Clone)]
pub(crate) struct RememberedOwner {
    pub(crate) id: ReplicaId,
    /// The time of the store's answer. Absent if another process had it.
    at: Option<Duration>,
}

impl RememberedOwners {
    /// No owner is remembered yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            owners: Cache::new(MAX_OWNERS),
        }
    }

    /// The owner of a record, however long ago the store named it.
    pub(crate) fn get(&self, name: &RecordName) -> Option<RememberedOwner> {
        self.owners.get(name)
    }

    /// Reports if the store named the owner a moment ago.
    pub(crate) fn is_fresh(&self, owner: &RememberedOwner) -> bool {
        let now = self.clock.monotonic();
        owner
            .at
            .is_some_and(|at| now.saturating_sub(at) <= OWNER_AGE)
    }

    /// Takes note of an owner that the store named now.
    pub(crate) fn insert(&self, name: RecordName, id: ReplicaId) {
        let at = Some(self.clock.monotonic());
        self.owners.insert(name, RememberedOwner { id, at });
    }

    /// Forgets the owner of a record.
    pub(crate) fn remove(&self, name: &RecordName) {
        self.owners.remove(name);
    }

    /// Describes all owners for another process.
    pub(crate) fn export(&self) -> String {
        let pair = |(name, owner): (RecordName, RememberedOwner)| [&name[..], &owner.id.0].concat();
        let pairs: Vec<u8> = self.owners.iter().flat_map(pair).collect();
        BASE64URL_NOPAD.encode(&pairs)
    }

    /// Takes the owners that another process described.
    pub(crate) fn import(&self, text: &str) {
        let pairs = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap_or_default();
        for pair in pairs.as_chunks::<PAIR_BYTES>().0 {
            if let Some((name, id)) = pair.split_first_chunk::<NAME_BYTES>()
                && let Some(id) = ReplicaId::from_bytes(id)
            {
                self.owners.insert(*name, RememberedOwner { id, at: None });
            }
        }
    }
}
