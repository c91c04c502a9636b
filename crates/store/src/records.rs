//! Records in memory: sharded, principal first, with a time to live, counted and bounded.
//!
//! A record costs its value and at most about 300 bytes: a packed 33-byte name and a pointer in the
//! map, one boxed entry, and one item in the heap of expiries. There is no task and no timer:
//! expired records are found by the next query.
//!
//! The metric of sessions is counted here: while records move to another process, the requests of
//! both processes change them, and only the store sees each change once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::ready;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use parking_lot::Mutex;
use weir_core::Principal;
use weir_core::instant::millis;
use weir_core::port::{
    BoxFuture, Clock, ReadyOrBoxFuture, RecordKey, RecordStore, StoreError, StoredRecord,
    WriteCondition, WriteOutcome,
};
use weir_core::telemetry::instruments;

use crate::store_operation::StoreOperation;

static LOAD: StoreOperation = StoreOperation::new("records", "load");
static STORE: StoreOperation = StoreOperation::new("records", "store");
static REMOVE: StoreOperation = StoreOperation::new("records", "remove");

/// Enough that two cores rarely meet at one, few enough that walking all of them is cheap.
const RECORD_SHARDS: usize = 64;
/// The longest value; a longer one is a bug of its writer.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// The limits of the number of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordCaps {
    /// Of all principals.
    pub total: usize,
    /// Of one principal. It does not bind the anonymous principal, which all anonymous callers
    /// share.
    pub per_principal: usize,
}

impl Default for RecordCaps {
    /// As many as one process holds in well under half a gigabyte, and more sessions than one user
    /// opens in good faith.
    fn default() -> Self {
        Self {
            total: 200_000,
            per_principal: 100,
        }
    }
}

/// Records of this replica.
pub struct MemoryRecords {
    clock: Arc<dyn Clock>,
    total: AtomicUsize,
    per_principal: AtomicUsize,
    hasher: RandomState,
    shards: Box<[Mutex<RecordShard>]>,
    /// The number of records of each principal, by its digest.
    owned: Box<[Mutex<OwnerCounts>]>,
    alive: AtomicUsize,
}

/// A record on its way to another process.
#[derive(Clone, Debug)]
pub struct MovedRecord {
    /// Its full name.
    pub key: RecordKey,
    /// Its bytes.
    pub value: Bytes,
    /// The version that it has.
    pub version: u64,
    /// The time that it has left to live.
    pub left: Duration,
}

type OwnerCounts = HashMap<[u8; 16], u32>;

/// The digest of the principal, and the id.
type RecordName = [u8; 32];

#[derive(Default)]
struct RecordShard {
    entries: HashMap<RecordName, Box<RecordEntry>>,
    /// The time to examine an entry next. If the entry was touched since, its item is put back.
    order: BinaryHeap<Reverse<(u64, RecordName)>>,
    /// Expired records that [`RecordStore::expired`] has not returned yet.
    expired: VecDeque<(u64, RecordKey)>,
    /// Never used twice, so that a new record differs from a removed one of the same key.
    versions: u64,
}

struct RecordEntry {
    principal: Principal,
    value: Box<[u8]>,
    version: u64,
    /// Milliseconds of the clock.
    expires_at: u64,
}

impl MemoryRecords {
    /// An empty store of records.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, caps: RecordCaps) -> Self {
        Self {
            clock,
            total: AtomicUsize::new(caps.total),
            per_principal: AtomicUsize::new(caps.per_principal),
            hasher: RandomState::new(),
            shards: (0..RECORD_SHARDS).map(|_| Mutex::default()).collect(),
            owned: (0..RECORD_SHARDS).map(|_| Mutex::default()).collect(),
            alive: AtomicUsize::new(0),
        }
    }

    /// Changes the caps. Records above a lowered cap stay until they expire.
    pub fn set_caps(&self, caps: RecordCaps) {
        self.total.store(caps.total, Ordering::Relaxed);
        self.per_principal
            .store(caps.per_principal, Ordering::Relaxed);
    }

    /// Takes all records out. Expired records have no time left.
    pub fn take_all(&self) -> Vec<MovedRecord> {
        let now = self.now();
        let mut all = Vec::new();
        for shard in &self.shards {
            let entries = {
                let mut shard = shard.lock();
                shard.order.clear();
                std::mem::take(&mut shard.entries)
            };
            for (name, entry) in entries {
                self.release(&entry.principal);
                let left = Duration::from_millis(entry.expires_at.saturating_sub(now));
                let (version, value) = (entry.version, Bytes::from(entry.value));
                all.push(MovedRecord {
                    key: key_of(entry.principal, &name),
                    value,
                    version,
                    left,
                });
            }
        }
        all
    }

    /// Puts in a record that was taken out of another process. The caps do not bind it.
    pub fn put(&self, record: MovedRecord) {
        let (ends, name) = (
            self.now().saturating_add(millis(record.left)),
            name_of(&record.key),
        );
        let principal = record.key.principal;
        let mut shard = self.shard(&name).lock();
        shard.versions = shard.versions.max(record.version);
        let entry = RecordEntry {
            principal: principal.clone(),
            value: record.value.to_vec().into(),
            version: record.version,
            expires_at: ends,
        };
        shard.order.push(Reverse((ends, name)));
        let is_new = shard.entries.insert(name, Box::new(entry)).is_none();
        drop(shard);
        if is_new {
            self.alive.fetch_add(1, Ordering::Relaxed);
            instruments().sessions.add(1, &[]);
            if !principal.is_anonymous() {
                *self
                    .owned_by(&principal)
                    .lock()
                    .entry(*principal.digest())
                    .or_default() += 1;
            }
        }
    }

    fn now(&self) -> u64 {
        millis(self.clock.monotonic())
    }

    fn shard(&self, name: &RecordName) -> &Mutex<RecordShard> {
        &self.shards[self.hasher.hash_one(name) as usize % RECORD_SHARDS]
    }

    fn load_now(&self, key: &RecordKey, touch: Option<Duration>) -> Option<StoredRecord> {
        let now = self.now();
        let name = name_of(key);
        let mut shard = self.shard(&name).lock();
        let entry = shard
            .entries
            .get_mut(&name)
            .filter(|entry| entry.expires_at > now)?;
        let record = StoredRecord {
            value: Bytes::copy_from_slice(&entry.value),
            version: entry.version,
        };
        if let Some(ttl) = touch {
            let ends = now.saturating_add(millis(ttl));
            let sooner = ends < entry.expires_at;
            entry.expires_at = ends;
            if sooner {
                shard.order.push(Reverse((ends, name)));
            }
        }
        Some(record)
    }

    fn store_now(
        &self,
        key: &RecordKey,
        value: &[u8],
        ttl: Duration,
        expect: WriteCondition,
    ) -> Result<WriteOutcome, StoreError> {
        if value.len() > MAX_VALUE_BYTES {
            return Err(StoreError(format!(
                "a value of {} bytes is longer than {MAX_VALUE_BYTES}",
                value.len()
            )));
        }
        let now = self.now();
        let ends = now.saturating_add(millis(ttl));
        let name = name_of(key);
        if expect == WriteCondition::Absent && self.reserve(&key.principal).is_err() {
            self.sweep(now);
            if let Err(full) = self.reserve(&key.principal) {
                return Ok(full);
            }
        }
        let mut shard = self.shard(&name).lock();
        let there = shard
            .entries
            .get(&name)
            .map(|entry| (entry.version, entry.expires_at > now));
        let fits = match (expect, there) {
            (WriteCondition::Absent, None | Some((_, false))) => true,
            (WriteCondition::Version(wanted), Some((version, true))) => wanted == version,
            _ => false,
        };
        // A slot was reserved for a new record; if one existed (expired or not), the slot is not
        // needed.
        let unneeded = expect == WriteCondition::Absent && there.is_some();
        let written = if fits {
            WriteOutcome::Stored(shard.put(name, &key.principal, value, ends))
        } else {
            WriteOutcome::Conflict
        };
        drop(shard);
        if unneeded {
            self.release(&key.principal);
        }
        Ok(written)
    }

    fn remove_now(&self, key: &RecordKey) -> bool {
        let now = self.now();
        let name = name_of(key);
        let mut shard = self.shard(&name).lock();
        // An expired record is left for `expired`, which must return its key to the caller that
        // ends the session.
        if shard
            .entries
            .get(&name)
            .is_none_or(|entry| entry.expires_at <= now)
        {
            return false;
        }
        shard.entries.remove(&name);
        shard.compact();
        drop(shard);
        self.release(&key.principal);
        true
    }

    /// Reserves a slot for one more record of the principal; returns the exceeded limit as the
    /// error.
    fn reserve(&self, principal: &Principal) -> Result<(), WriteOutcome> {
        let total = self.total.load(Ordering::Relaxed);
        let room = |alive: usize| (alive < total).then_some(alive + 1);
        if self
            .alive
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_err()
        {
            return Err(WriteOutcome::Full);
        }
        if principal.is_anonymous() || self.reserve_of_owner(principal) {
            instruments().sessions.add(1, &[]);
            return Ok(());
        }
        self.alive.fetch_sub(1, Ordering::Relaxed);
        Err(WriteOutcome::OwnerFull)
    }

    /// Reserves a slot of the principal's own; false if it has none left.
    fn reserve_of_owner(&self, principal: &Principal) -> bool {
        let most = u32::try_from(self.per_principal.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let mut owned = self.owned_by(principal).lock();
        let count = owned.entry(*principal.digest()).or_default();
        if *count < most {
            *count += 1;
            return true;
        }
        if *count == 0 {
            owned.remove(principal.digest());
        }
        false
    }

    fn release(&self, principal: &Principal) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
        instruments().sessions.add(-1, &[]);
        if principal.is_anonymous() {
            return;
        }
        let mut owned = self.owned_by(principal).lock();
        if let Some(count) = owned.get_mut(principal.digest()) {
            *count -= 1;
            if *count == 0 {
                owned.remove(principal.digest());
            }
        }
    }

    fn owned_by(&self, principal: &Principal) -> &Mutex<OwnerCounts> {
        &self.owned[self.hasher.hash_one(principal.digest()) as usize % RECORD_SHARDS]
    }

    /// Moves expired records to the `expired` lists, up to the limit of those until the next query.
    /// The rest stay among the living: an expiry that is never reported would leave behind all
    /// state of the session.
    fn sweep(&self, now: u64) {
        let most_expired = (2 * self.total.load(Ordering::Relaxed) / RECORD_SHARDS).max(1024);
        for shard in &self.shards {
            let gone = shard.lock().take_expired(now, most_expired);
            gone.iter().for_each(|principal| self.release(principal));
        }
    }
}

impl std::fmt::Debug for MemoryRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRecords")
            .field("alive", &self.alive)
            .finish_non_exhaustive()
    }
}

impl RecordShard {
    fn put(&mut self, name: RecordName, principal: &Principal, value: &[u8], ends: u64) -> u64 {
        self.versions += 1;
        let version = self.versions;
        let entry = RecordEntry {
            principal: principal.clone(),
            value: value.into(),
            version,
            expires_at: ends,
        };
        let before = self.entries.insert(name, Box::new(entry));
        // An entry has one item in `order`, at its end or earlier; only a new entry, or a sooner
        // end, needs one more.
        if before.is_none_or(|old| ends < old.expires_at) {
            self.order.push(Reverse((ends, name)));
        }
        version
    }

    /// Takes out expired records, while there are fewer than `most_expired`; returns the owners,
    /// once for each record.
    fn take_expired(&mut self, now: u64, most_expired: usize) -> Vec<Principal> {
        let mut owners = Vec::new();
        while let Some(&Reverse((due, name))) = self.order.peek() {
            if due > now || self.expired.len() >= most_expired {
                break;
            }
            self.order.pop();
            match self.entries.get(&name).map(|entry| entry.expires_at) {
                Some(ends) if ends > now => self.order.push(Reverse((ends, name))),
                Some(_) => {
                    if let Some(entry) = self.entries.remove(&name) {
                        owners.push(entry.principal.clone());
                        self.expired
                            .push_back((entry.expires_at, key_of(entry.principal, &name)));
                    }
                }
                None => {}
            }
        }
        owners
    }

    /// Rebuilds `order` if it has too many items of removed records; it never holds more than twice
    /// as many items as there are records, and 64.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 64 {
            self.order = self
                .entries
                .iter()
                .map(|(name, entry)| Reverse((entry.expires_at, *name)))
                .collect();
        }
    }
}

impl RecordStore for MemoryRecords {
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
    ) -> ReadyOrBoxFuture<'a, Result<Option<StoredRecord>, StoreError>> {
        Either::Left(ready(Ok(LOAD.time(|| self.load_now(key, touch)))))
    }

    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        ttl: Duration,
        expect: WriteCondition,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>> {
        Box::pin(ready(
            STORE.time(|| self.store_now(key, &value, ttl, expect)),
        ))
    }

    fn remove<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(ready(Ok(REMOVE.time(|| self.remove_now(key)))))
    }

    fn contains(&self, key: &RecordKey) -> bool {
        let now = self.now();
        let name = name_of(key);
        let shard = self.shard(&name).lock();
        let entry = shard.entries.get(&name);
        entry.is_some_and(|entry| entry.expires_at > now)
    }

    fn count(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    fn visit(&self, look: &mut dyn FnMut(&RecordKey, &[u8])) {
        let now = self.now();
        for shard in &self.shards {
            let shard = shard.lock();
            for (name, entry) in shard
                .entries
                .iter()
                .filter(|(_, entry)| entry.expires_at > now)
            {
                look(&key_of(entry.principal.clone(), name), &entry.value);
            }
        }
    }

    fn expired(&self) -> Vec<RecordKey> {
        let now = self.now();
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let gone = shard.take_expired(now, usize::MAX);
            all.extend(shard.expired.drain(..));
            drop(shard);
            gone.iter().for_each(|principal| self.release(principal));
        }
        all.sort_by_key(|(ended, _)| *ended);
        all.into_iter().map(|(_, key)| key).collect()
    }
}

fn name_of(key: &RecordKey) -> RecordName {
    let mut name = [0; 32];
    name[..16].copy_from_slice(key.principal.digest());
    name[16..].copy_from_slice(&key.id);
    name
}

fn key_of(principal: Principal, name: &RecordName) -> RecordKey {
    let mut id = [0; 16];
    id.copy_from_slice(&name[16..]);
    RecordKey { principal, id }
}

#[cfg(test)]
pub(crate) mod tests;
