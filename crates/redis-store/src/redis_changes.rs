//! Operators' changes that replicas share: one hash in the shared store, and a copy of it in the
//! memory of each replica. The newest version of each target wins, wherever it is.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use redis::cmd;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use weir_core::instant::unix_millis;
use weir_core::port::{
    BoxFuture, BusMessage, ChangeDraft, ChangeMap, ChangeTarget, ChangeVersion, Clock, MessageBus,
    Random, ReplicaId, SharedChange, SharedChanges, StoreError, full_jitter, random_id,
};
use weir_seal::{Sealer, SealingKeyName};

use crate::change_seal::{
    ChangeSeal, UnusableValue, entry_end, field_name, millis_text, target_of,
};
use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink, RunningCommand};
use crate::scripts::WRITE_CHANGES;

/// The topic of the messages that have other replicas look at once.
const TOPIC: &str = "operator-changes";
/// The field with a value that differs after every write.
const STAMP_FIELD: &str = "stamp";
/// The time between looks at the stamp.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The time after which all entries are fetched although the stamp is the same: an entry that another
/// writer deleted or replaced is written again.
const FULL_LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a failed look, before jitter.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a look for a message: several messages in a row are one look.
const MESSAGE_PAUSE: Duration = Duration::from_millis(20);
/// The longest time that [`SharedChanges::fetch`] waits for the connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);
/// The most entries that one run of the script writes.
const MAX_WRITTEN: usize = 200;

/// The operators' changes of all replicas.
pub struct RedisChanges {
    link: Arc<RedisLink>,
    seal: ChangeSeal,
    clock: Arc<dyn Clock>,
    bus: Arc<dyn MessageBus>,
    own: ReplicaId,
    key: String,
    /// The newest change of each target that this replica knows.
    known: watch::Sender<Arc<ChangeMap>>,
    stored: Mutex<StoredChanges>,
    /// One look at a time.
    turn: tokio::sync::Mutex<()>,
    /// A change waits to be written.
    changed: Notify,
}

/// The ports and keys of [`RedisChanges`].
pub(crate) struct ChangePorts {
    pub(crate) sealer: Sealer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) bus: Arc<dyn MessageBus>,
}

/// The content of the hash, as this replica last saw it.
#[derive(Default)]
struct StoredChanges {
    stamp: Option<String>,
    fetched_at: Option<Instant>,
    versions: HashMap<ChangeTarget, ChangeVersion>,
    /// The values that may be replaced by the same version: those that do not open, and those that
    /// are sealed with an older key than this replica seals with.
    replaceable: HashMap<ChangeTarget, String>,
    /// The targets of the latter: they outlive their key only if they are sealed again.
    outdated: HashSet<ChangeTarget>,
    /// The key that sealed when the entries were fetched.
    sealing_key: Option<SealingKeyName>,
    /// The values that were reported already.
    reported: HashMap<ChangeTarget, String>,
    /// The first look failed.
    is_first_overdue: bool,
    /// A change could not be written in time.
    is_write_overdue: bool,
}

/// An entry that the store lacks.
struct PendingEntry {
    target: ChangeTarget,
    version: ChangeVersion,
    value: String,
    /// The value that it may replace, or an empty text.
    replaces: String,
}

impl RedisChanges {
    pub(crate) fn new(
        link: Arc<RedisLink>,
        ports: ChangePorts,
        namespace: &str,
        own: ReplicaId,
    ) -> Self {
        let seal = ChangeSeal::new(ports.sealer, ports.random);
        Self {
            link,
            seal,
            clock: ports.clock,
            bus: ports.bus,
            own,
            key: format!("{namespace}:changes"),
            known: watch::Sender::new(Arc::default()),
            stored: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Looks at the store every interval, at messages, and when the connection or the changes of
    /// this replica are new. It never ends.
    pub(crate) async fn keep_synced(&self) {
        let mut messages = self.bus.subscribe(TOPIC);
        let mut connection = 0;
        loop {
            let wait = match self.sync(BACKGROUND_TIMEOUT).await {
                Ok(()) => LOOK_INTERVAL,
                Err(_) => full_jitter(RETRY_PAUSE, self.link.random()),
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.changed.notified() => {}
                number = self.link.wait_opened(connection) => connection = number,
                _ = messages.recv() => sleep(MESSAGE_PAUSE).await,
            }
        }
    }

    /// Writes the changes that wait, before the end of this process.
    pub(crate) async fn flush(&self) {
        if self.pending().is_empty() {
            return;
        }
        let is_over = timeout(BACKGROUND_TIMEOUT, self.sync(BACKGROUND_TIMEOUT)).await;
        let unwritten = self.pending().len();
        if unwritten > 0 {
            let error = match is_over {
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(())) | Err(_) => "no answer in time".to_owned(),
            };
            tracing::warn!(
                unwritten,
                error,
                "operator changes not written to the shared store before the end"
            );
        }
    }

    /// Fetches the changes of others if there are new ones, and writes those that the store lacks.
    async fn sync(&self, limit: Duration) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let stamp = self.read_stamp(limit).await?;
        let is_known = {
            let stored = self.stored.lock();
            let is_recent = |at: Instant| at.elapsed() < FULL_LOOK_INTERVAL;
            stamp.is_some()
                && stamp == stored.stamp
                && stored.fetched_at.is_some_and(is_recent)
                && stored.sealing_key == Some(self.seal.sealing_key())
        };
        if !is_known {
            self.fetch_all(stamp.is_some(), limit).await?;
        }
        self.write_pending(limit).await?;
        let mut stored = self.stored.lock();
        if std::mem::take(&mut stored.is_first_overdue) {
            tracing::info!("operator changes fetched from the shared store");
        }
        if std::mem::take(&mut stored.is_write_overdue) {
            tracing::info!("operator changes written to the shared store");
        }
        Ok(())
    }

    async fn read_stamp(&self, limit: Duration) -> Result<Option<String>, StoreError> {
        let mut get = cmd("HGET");
        get.arg(&self.key).arg(STAMP_FIELD);
        self.link.query("poll_changes", limit, &get).await
    }

    /// Takes all entries of the hash; `is_there` is false if there is none.
    async fn fetch_all(&self, is_there: bool, limit: Duration) -> Result<(), StoreError> {
        let mut entries: HashMap<String, Vec<u8>> = HashMap::new();
        if is_there {
            let mut get = cmd("HGETALL");
            get.arg(&self.key);
            entries = self.link.query("fetch_changes", limit, &get).await?;
        }
        let stamp = entries.remove(STAMP_FIELD);
        let sealing_key = self.seal.sealing_key();
        let mut found = Vec::new();
        let (mut replaceable, mut outdated) = (HashMap::new(), HashSet::new());
        for (field, value) in &entries {
            let Some(target) = target_of(field) else {
                continue;
            };
            let value = String::from_utf8_lossy(value);
            match self.seal.open(&target, &value) {
                Ok(change) => {
                    found.push((target, change));
                    if self.seal.has_older_key(&value) {
                        outdated.insert(target);
                        replaceable.insert(target, value.into_owned());
                    }
                }
                Err(reason) => {
                    self.report_unusable(target, &value, reason);
                    if reason == UnusableValue::Corrupted {
                        replaceable.insert(target, value.into_owned());
                    }
                }
            }
        }
        {
            let mut stored = self.stored.lock();
            stored.stamp = stamp.map(|stamp| String::from_utf8_lossy(&stamp).into_owned());
            stored.fetched_at = Some(Instant::now());
            let versions = found.iter().map(|(target, one)| (*target, one.version));
            stored.versions = versions.collect();
            stored.replaceable = replaceable;
            stored.outdated = outdated;
            stored.sealing_key = Some(sealing_key);
        }
        self.merge(found);
        Ok(())
    }

    /// Logs a value that gives no change, once.
    fn report_unusable(&self, target: ChangeTarget, value: &str, reason: UnusableValue) {
        let mut stored = self.stored.lock();
        let before = stored.reported.insert(target, value.to_owned());
        if before.as_deref() == Some(value) {
            return;
        }
        let entry = field_name(&target);
        match reason {
            UnusableValue::Corrupted => {
                tracing::warn!(entry, "operator change in the shared store is corrupted");
            }
            UnusableValue::Foreign => tracing::warn!(
                entry,
                "operator change in the shared store is sealed with an unknown key or of another version"
            ),
        }
    }

    /// Takes changes that are newer than the known ones, and forgets those that are over.
    fn merge(&self, found: impl IntoIterator<Item = (ChangeTarget, SharedChange)>) {
        let now = self.now();
        self.known.send_if_modified(|known| {
            let mut merged = ChangeMap::clone(known);
            merged.retain(|_, change| entry_end(change) > now);
            for (target, change) in found {
                let newest = merged.get(&target).map(|known| known.version);
                if entry_end(&change) > now && newest < Some(change.version) {
                    merged.insert(target, change);
                }
            }
            let differs = merged != **known;
            if differs {
                *known = Arc::new(merged);
            }
            differs
        });
    }

    /// Adds a change of this replica as the newest of its target.
    fn add_newest(&self, draft: ChangeDraft) {
        self.known.send_modify(|known| {
            let before = known.get(&draft.target).map(|known| known.version.at);
            let at = before.map_or(draft.at, |before| draft.at.max(before.saturating_add(1)));
            let (target, change) = self.change_at(draft, at);
            let mut all = ChangeMap::clone(known);
            all.insert(target, change);
            *known = Arc::new(all);
        });
    }

    fn change_at(&self, draft: ChangeDraft, at: u64) -> (ChangeTarget, SharedChange) {
        let version = ChangeVersion {
            at,
            replica: self.own.0,
        };
        let change = SharedChange {
            version,
            is_removal: draft.is_removal,
            ends: draft.ends,
            body: draft.body,
        };
        (draft.target, change)
    }

    /// Returns the known changes that the store lacks, has in older versions, or has under an older
    /// key.
    fn pending(&self) -> Vec<PendingEntry> {
        let (known, now) = (self.known.borrow().clone(), self.now());
        let stored = self.stored.lock();
        let is_pending = |target: &ChangeTarget, change: &SharedChange| {
            let is_newer = stored.versions.get(target) < Some(&change.version);
            (is_newer || stored.outdated.contains(target)) && entry_end(change) > now
        };
        let entry = |(target, change): (&ChangeTarget, &SharedChange)| PendingEntry {
            target: *target,
            version: change.version,
            value: self.seal.seal(target, change),
            replaces: stored.replaceable.get(target).cloned().unwrap_or_default(),
        };
        let pending = known.iter();
        let pending = pending.filter(|(target, change)| is_pending(target, change));
        pending.map(entry).collect()
    }

    async fn write_pending(&self, limit: Duration) -> Result<(), StoreError> {
        let pending = self.pending();
        for entries in pending.chunks(MAX_WRITTEN) {
            self.write(entries, limit).await?;
        }
        if !pending.is_empty() {
            self.bus.publish(BusMessage {
                topic: TOPIC,
                body: Bytes::new(),
            });
        }
        Ok(())
    }

    async fn write(&self, entries: &[PendingEntry], limit: Duration) -> Result<(), StoreError> {
        let mut call = WRITE_CHANGES.prepare_invoke();
        call.key(&self.key)
            .arg(STAMP_FIELD)
            .arg(HEXLOWER.encode(&random_id(self.link.random())))
            .arg(millis_text(self.now()));
        for entry in entries {
            call.arg(field_name(&entry.target))
                .arg(&entry.value)
                .arg(&entry.replaces);
        }
        let command = RunningCommand::may_write("write_changes");
        let (before, after): (String, String) = self.link.run_script(command, limit, &call).await?;
        let mut stored = self.stored.lock();
        let written = entries.iter().map(|entry| (entry.target, entry.version));
        stored.versions.extend(written);
        for entry in entries {
            stored.outdated.remove(&entry.target);
        }
        if stored.stamp.as_deref().unwrap_or_default() == before {
            stored.stamp = Some(after);
        } else {
            // Another replica wrote in between: the next look fetches its changes.
            self.changed.notify_one();
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        unix_millis(self.clock.wall())
    }
}

impl SharedChanges for RedisChanges {
    fn publish(&self, draft: ChangeDraft) -> BoxFuture<'_, Result<(), StoreError>> {
        self.add_newest(draft);
        Box::pin(async move {
            let limit = self.link.command_timeout();
            let outcome = match timeout(limit, self.sync(limit)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(StoreError(format!("no answer within {limit:?}"))),
            };
            if let Err(error) = &outcome {
                self.stored.lock().is_write_overdue = true;
                self.changed.notify_one();
                tracing::warn!(%error, "operator change not in the shared store yet: other replicas follow later");
            }
            outcome
        })
    }

    fn restore(&self, draft: ChangeDraft) {
        let at = draft.at;
        self.merge([self.change_at(draft, at)]);
        self.changed.notify_one();
    }

    fn fetch(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let limit = CONNECTION_WAIT + self.link.command_timeout();
            let outcome = match timeout(limit, self.sync(limit)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(StoreError(format!("no answer within {limit:?}"))),
            };
            if let Err(error) = &outcome {
                self.stored.lock().is_first_overdue = true;
                tracing::warn!(%error, "operator changes of other replicas not known yet");
            }
            outcome
        })
    }

    fn watch(&self) -> watch::Receiver<Arc<ChangeMap>> {
        self.known.subscribe()
    }
}

impl fmt::Debug for RedisChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisChanges")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
