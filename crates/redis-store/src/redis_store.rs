//! The shared store of one replica: its connection, its place in the registry, and the ports over
//! both.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use weir_core::port::{
    Clock, MessageBus, Random, RecordStore, ReplayLog, ReplicaDirectory as _, ReplicaId,
    StoreError, TaskBook,
};
use weir_seal::{Sealer, SealerKey, SealingKeyName};
use weir_store::{MemoryBus, PendingCount, PendingSum};

use crate::lease_trips::keep_leasing;
use crate::rate_commands::RateCommands;
use crate::record_commands::RecordCommands;
use crate::record_looks;
use crate::record_notices::RecordNotices;
use crate::record_seal::RecordSeal;
use crate::record_writer::RecordWriter;
use crate::redis_changes::{ChangePorts, RedisChanges};
use crate::redis_client::RedisClient;
use crate::redis_counters::RedisCounters;
use crate::redis_leases::RedisLeases;
use crate::redis_link::RedisLink;
use crate::redis_lists::{RedisLists, TOPIC as LIST_TOPIC};
use crate::redis_rates::RedisRates;
use crate::registry_view::MovedView;
use crate::remembered_owners::RememberedOwners;
use crate::replay_seal::ReplaySeal;
use crate::replay_writer::ReplayWriter;
use crate::replica_info::ReplicaInfo;
use crate::replica_registry::ReplicaRegistry;
use crate::sealing_rotation::{SealingKeyUse, SealingRotation};
use crate::server_dialer::ServerDialer;
use crate::settings::RedisSettings;
use crate::shared_bus::SharedBus;
use crate::shared_records::SharedRecords;
use crate::shared_replays::SharedReplays;
use crate::shared_tasks::{SharedTasks, TaskSeal};
use crate::start_error::RedisStartError;
use crate::store_seal::StoreSeal;
use crate::task_writer::TaskWriter;

/// The longest time of each of the two waits for writes in [`RedisStore::begin_drain`].
const DRAIN_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The facts of this replica for the registry.
#[derive(Clone, Debug)]
pub struct OwnReplica {
    /// Its name: random, and another one after each start.
    pub id: ReplicaId,
    /// The `host:port` at which the other replicas reach its cluster listener.
    pub address: Arc<str>,
    /// The version of weir.
    pub version: Arc<str>,
    /// The digest of the config in force.
    pub config_digest: Arc<str>,
}

/// The ports and keys that the shared store uses.
#[derive(Clone, Debug)]
pub struct StorePorts {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The randomness of nonces and of waits.
    pub random: Arc<dyn Random>,
    /// The keys that seal records. All replicas need the same. The store chooses the one that
    /// seals.
    pub sealer: Sealer,
}

/// The state of the shared store as this replica sees it.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// True if the last commands were answered.
    pub is_connected: bool,
    /// The last error, kept after the store answers again.
    pub last_error: Option<Arc<str>>,
    /// The duration of the last command.
    pub latency: Duration,
    /// Writes that wait.
    pub pending_writes: usize,
    /// Settings of the server that may lose sessions.
    pub warnings: Vec<&'static str>,
}

/// The knowledge of one process about the other replicas, for the next process.
#[derive(Serialize, Deserialize)]
struct MovedKnowledge {
    view: MovedView,
    owners: String,
}

/// The shared store of this replica. Dropping it ends its tasks and its connections.
pub struct RedisStore {
    link: Arc<RedisLink>,
    registry: Arc<ReplicaRegistry>,
    namespace: String,
    ports: StorePorts,
    writers: Mutex<Vec<Arc<RecordWriter>>>,
    /// The writes of replay logs and of tasks that wait.
    copies: Mutex<Vec<PendingCount>>,
    /// All writes that wait.
    pending: PendingSum,
    buses: Mutex<Vec<Weak<MemoryBus>>>,
    /// The number of gaps in the messages of other replicas.
    gaps: watch::Sender<u64>,
    changes: Mutex<Option<Arc<RedisChanges>>>,
    lists: Arc<RedisLists>,
    owners: Arc<RememberedOwners>,
    rates: Mutex<Vec<Arc<RedisRates>>>,
    /// Those that act under the name of this replica.
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
    /// The connection, and the leases of rates: a process that left its name to another one still
    /// has requests to finish.
    nameless_tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

impl RedisStore {
    /// Begins to connect, in the background, and to send heartbeats. Needs a tokio runtime.
    ///
    /// # Errors
    /// The settings are invalid. A server that cannot be reached is no error.
    pub fn start(
        settings: &RedisSettings,
        own: OwnReplica,
        ports: StorePorts,
    ) -> Result<Self, RedisStartError> {
        let client = RedisClient::new(settings)?;
        Ok(Self::start_with(client, settings, own, ports))
    }

    /// As [`Self::start`], with a server that `dialer` reaches: the URLs and the topology of the
    /// settings have no effect.
    #[must_use]
    pub fn start_over(
        dialer: Arc<dyn ServerDialer>,
        settings: &RedisSettings,
        own: OwnReplica,
        ports: StorePorts,
    ) -> Self {
        Self::start_with(RedisClient::Dialed(dialer), settings, own, ports)
    }

    fn start_with(
        client: RedisClient,
        settings: &RedisSettings,
        own: OwnReplica,
        ports: StorePorts,
    ) -> Self {
        let random = ports.random.clone();
        let link = Arc::new(RedisLink::new(client, random, settings.command_timeout));
        let info = ReplicaInfo {
            address: own.address,
            version: own.version,
            config: own.config_digest,
            keys: Vec::new(),
            fingerprints: Vec::new(),
            sealing_key: None,
            opens_all: false,
            draining: false,
            frames: None,
        };
        let begun = ports.clock.monotonic();
        let lists = RedisLists::new(link.clone(), &settings.namespace, own.id.clone());
        let rotation = SealingRotation::new(ports.sealer.clone(), own.id, begun);
        let registry = Arc::new(ReplicaRegistry::new(
            link.clone(),
            ports.clock.clone(),
            &settings.namespace,
            rotation,
            info,
        ));
        let store = Self {
            lists: Arc::new(lists),
            owners: Arc::new(RememberedOwners::new(ports.clock.clone())),
            link: link.clone(),
            registry: registry.clone(),
            namespace: settings.namespace.clone(),
            ports,
            writers: Mutex::default(),
            copies: Mutex::default(),
            pending: PendingSum::default(),
            buses: Mutex::default(),
            gaps: watch::Sender::default(),
            changes: Mutex::default(),
            rates: Mutex::default(),
            tasks: Mutex::default(),
            nameless_tasks: Mutex::default(),
        };
        store.spawn_nameless(async move { link.keep_open().await });
        store.spawn(async move { registry.keep_beating().await });
        store
    }

    /// The registry of replicas.
    #[must_use]
    pub fn registry(&self) -> Arc<ReplicaRegistry> {
        self.registry.clone()
    }

    /// Describes the other replicas, and the owners of records, for the process that goes on under
    /// the name of this replica. `None` if the store has not answered yet.
    #[must_use]
    pub fn export_view(&self) -> Option<String> {
        let moved = MovedKnowledge {
            view: self.registry.export_view()?,
            owners: self.owners.export(),
        };
        serde_json::to_string(&moved).ok()
    }

    /// Goes on with the replicas and owners that the process before described, until the store
    /// answers. A description of another form has no effect.
    pub fn import_view(&self, description: &str) {
        if let Ok(moved) = serde_json::from_str::<MovedKnowledge>(description) {
            self.owners.import(&moved.owners);
            self.registry.import_view(moved.view);
        }
    }

    /// Waits for a view of the registry that begins now, up to `limit`: with it this replica knows
    /// the keys of the others. While the store does not answer, the last view stays in force.
    ///
    /// # Errors
    /// The store does not answer in time, and there is no view.
    pub async fn wait_for_view(&self, limit: Duration) -> Result<(), StoreError> {
        match timeout(limit, self.registry.refresh()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) if self.registry.has_view() => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError(format!("no answer within {limit:?}"))),
        }
    }

    /// Replaces the sealing keys of this process, newest first. They open from now on; a new one
    /// seals once every replica has announced it.
    pub fn replace_keys(&self, keys: Vec<SealerKey>) {
        self.registry.replace_keys(keys);
    }

    /// Returns the key that another replica seals with and this one lacks: it is not ready then.
    #[must_use]
    pub fn missing_key(&self) -> Option<SealingKeyUse> {
        self.registry.missing_key()
    }

    /// Returns a key that seals now, here or at another replica, and would be lost if these keys
    /// alone replaced those of this replica.
    #[must_use]
    pub fn lost_key_use(&self, kept: &[SealingKeyName]) -> Option<SealingKeyUse> {
        self.registry.lost_key_use(kept)
    }

    /// Records that replicas share, over those in the memory of this one. The bus is one of
    /// [`Self::link_bus`], and has the replicas drop records that another one took over.
    #[must_use]
    pub fn records(
        &self,
        local: Arc<dyn RecordStore>,
        bus: Arc<dyn MessageBus>,
    ) -> Arc<SharedRecords> {
        let clock = &self.ports.clock;
        let seal = RecordSeal(self.seal());
        let own = self.registry.own().clone();
        let commands = RecordCommands::new(self.link.clone(), seal, own);
        let notices = RecordNotices::new(bus, self.registry.own().clone());
        let noticed = notices.subscribe();
        let pending = self.pending.clone();
        let writer = RecordWriter::new(commands, notices, local.clone(), clock.clone(), pending);
        let writer = Arc::new(writer);
        self.writers.lock().push(writer.clone());
        let (own, looking) = (self.registry.own().clone(), writer.clone());
        self.spawn(record_looks::keep_looking(own, looking, noticed));
        let writing = writer.clone();
        self.spawn(async move { writing.keep_writing().await });
        for rewrites in [self.registry.rewrites(), self.link.server_runs()] {
            let rewriting = writer.clone();
            self.spawn(async move { rewriting.keep_rewriting(rewrites).await });
        }
        let (looking, gaps) = (writer.clone(), self.gaps.subscribe());
        self.spawn(async move { looking.keep_looking(gaps).await });
        let (registry, owners) = (self.registry.clone(), self.owners.clone());
        Arc::new(SharedRecords::new(local, writer, registry, owners))
    }

    /// Replay logs in the memory of this replica, with copies in the shared store that live for `age`
    /// after their last change.
    #[must_use]
    pub fn replays(&self, local: Arc<dyn ReplayLog>, age: Duration) -> Arc<SharedReplays> {
        let seal = ReplaySeal(self.seal());
        let writer = Arc::new(ReplayWriter::new(
            self.link.clone(),
            seal,
            age,
            self.pending.clone(),
        ));
        self.copies.lock().push(writer.pending().clone());
        let writing = writer.clone();
        self.spawn(async move { writing.keep_writing().await });
        Arc::new(SharedReplays::new(local, writer))
    }

    /// The task book of this replica, with copies of settled tasks in the shared store.
    #[must_use]
    pub fn tasks(&self, local: Arc<dyn TaskBook>) -> Arc<SharedTasks> {
        let writer = Arc::new(TaskWriter::new(self.link.clone(), self.pending.clone()));
        self.copies.lock().push(writer.pending().clone());
        let writing = writer.clone();
        self.spawn(async move { writing.keep_writing().await });
        Arc::new(SharedTasks::new(local, writer, TaskSeal(self.seal())))
    }

    /// The versions of upstreams' lists that replicas share. They need [`Self::link_bus`].
    #[must_use]
    pub fn lists(&self) -> Arc<RedisLists> {
        self.lists.clone()
    }

    /// Sends every message of a bus to the other replicas, and theirs to it. To be called once.
    pub fn link_bus(&self, bus: &Arc<MemoryBus>) {
        let (shared, waiting) = SharedBus::link(
            self.link.clone(),
            &self.namespace,
            self.registry.clone(),
            bus,
            self.gaps.clone(),
        );
        self.buses.lock().push(Arc::downgrade(bus));
        let lists = self.lists.clone();
        let (messages, gaps) = (bus.subscribe(LIST_TOPIC), self.gaps.subscribe());
        self.spawn(async move { lists.keep_looking(messages, gaps).await });
        let sending = Arc::new(shared);
        let (receiving, comparing) = (sending.clone(), sending.clone());
        self.spawn(async move { comparing.keep_comparing().await });
        self.spawn(async move { sending.keep_sending(waiting).await });
        self.spawn(async move { receiving.keep_receiving().await });
    }

    /// Counters that replicas share.
    #[must_use]
    pub fn counters(&self) -> Arc<RedisCounters> {
        let link = self.link.clone();
        let (namespace, clock) = (self.namespace.clone(), self.ports.clock.clone());
        Arc::new(RedisCounters::new(link, namespace, clock))
    }

    /// Leases that one replica holds at a time.
    #[must_use]
    pub fn leases(&self) -> Arc<RedisLeases> {
        let own = self.registry.own().clone();
        let namespace = self.namespace.clone();
        Arc::new(RedisLeases::new(self.link.clone(), namespace, own))
    }

    /// Rates that replicas share.
    #[must_use]
    pub fn rates(&self) -> Arc<RedisRates> {
        let commands = RateCommands::new(self.link.clone(), self.namespace.clone());
        let clock = self.ports.clock.clone();
        let (rates, orders) = RedisRates::new(commands, self.registry.clone(), clock);
        let rates = Arc::new(rates);
        self.rates.lock().push(rates.clone());
        let leasing = rates.clone();
        self.spawn_nameless(async move { keep_leasing(&leasing, orders).await });
        rates
    }

    /// Gives the unused tokens of rates back to all replicas, within a limited time. To be called
    /// after the last request.
    pub async fn return_rate_tokens(&self) {
        let all = self.rates.lock().clone();
        for rates in all {
            rates.return_all().await;
        }
    }

    /// Operators' changes that replicas share. Messages of the bus have other replicas look at once.
    #[must_use]
    pub fn changes(&self, bus: Arc<dyn MessageBus>) -> Arc<RedisChanges> {
        let changes = Arc::new(RedisChanges::new(
            self.link.clone(),
            ChangePorts {
                sealer: self.ports.sealer.clone(),
                clock: self.ports.clock.clone(),
                random: self.ports.random.clone(),
                bus,
            },
            &self.namespace,
            self.registry.own().clone(),
        ));
        *self.changes.lock() = Some(changes.clone());
        let synced = changes.clone();
        self.spawn(async move { synced.keep_synced().await });
        changes
    }

    /// Changes the digest of the config in force, as the other replicas see it.
    pub fn set_config_digest(&self, digest: Arc<str>) {
        self.registry.set_config_digest(digest);
    }

    /// Writes all records, and then announces the end of this replica: the others take over its
    /// sessions from now on. Returns the number of writes that did not reach the store in time.
    pub async fn begin_drain(&self) -> usize {
        // Each node of a cluster may have lost data unnoticed.
        if self.link.is_cluster() && self.status().is_connected {
            let writers = self.writers.lock().clone();
            writers.iter().for_each(|writer| writer.write_all_again());
        }
        // The others find in the store what this replica has written before.
        let left = self.flush().await;
        self.registry.set_draining();
        if let Err(error) = self.registry.refresh().await {
            tracing::warn!(%error, "other replicas not notified of drain");
        }
        // The store does not answer, and a second wait would only delay the end.
        if left > 0 {
            return left;
        }
        self.flush().await
    }

    /// Writes all records, and leaves the name of this replica to another process: that one sends
    /// the heartbeats, the records and the messages from now on.
    pub async fn leave_to_successor(&self) {
        self.flush().await;
        self.registry.stop();
        for bus in std::mem::take(&mut *self.buses.lock()) {
            if let Some(bus) = bus.upgrade() {
                SharedBus::unlink(&bus);
            }
        }
        self.tasks.lock().clear();
    }

    /// Writes all records and removes this replica from the registry.
    pub async fn shutdown(&self) {
        self.flush().await;
        self.return_rate_tokens().await;
        if let Err(error) = self.registry.leave().await {
            tracing::warn!(%error, "replica not removed from the registry");
        }
    }

    async fn flush(&self) -> usize {
        let changes = self.changes.lock().clone();
        if let Some(changes) = changes {
            changes.flush().await;
        }
        let writers = self.writers.lock().clone();
        let mut left = 0;
        for writer in writers {
            left += writer.flush(DRAIN_FLUSH_TIMEOUT).await;
        }
        // After a failed wait for records another one would only delay the end.
        let copies_limit = if left == 0 {
            DRAIN_FLUSH_TIMEOUT
        } else {
            Duration::ZERO
        };
        let copies = self.copies.lock().clone();
        for pending in copies {
            left += pending.wait_for_zero(copies_limit).await;
        }
        left
    }

    /// The state of the store.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let values = self.link.status().values();
        StoreStatus {
            is_connected: values.is_reachable == Some(true),
            last_error: values.last_error,
            latency: values.latency,
            pending_writes: self.pending.get(),
            warnings: values.risks.iter().map(|risk| risk.text()).collect(),
        }
    }

    /// Ends all tasks, as a crash of the process does.
    #[cfg(test)]
    pub(crate) fn abort_tasks(&self) {
        self.tasks.lock().clear();
        self.nameless_tasks.lock().clear();
    }

    fn seal(&self) -> StoreSeal {
        let ports = &self.ports;
        StoreSeal::new(
            self.namespace.clone(),
            ports.sealer.clone(),
            ports.random.clone(),
        )
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        self.tasks.lock().push(task);
    }

    fn spawn_nameless(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        self.nameless_tasks.lock().push(task);
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("namespace", &self.namespace)
            .field("own", self.registry.own())
            .finish_non_exhaustive()
    }
}
