//! The links to the other replicas that serve the same clients: the shared store, and the requests
//! between replicas.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_admin::{ReplicaOverview, SharedStoreState};
use weir_catalog::Catalog;
use weir_cluster::{
    ClusterSettings, ClusterTls, ConfirmedLists, ListFollower, ListStreams, PeerForwarder,
};
use weir_config::{Config, StorePlan};
use weir_core::Budgets;
use weir_core::port::{
    BoxFuture, ListAnnouncements, RecordStore, ReplayLog, ReplicaDirectory as _, ReplicaId,
    ReplicaSeen, SharedChanges, SharedCounters, SharedRates, TaskBook,
};
use weir_core::session_notifier::SessionNotifier;
use weir_core::telemetry::instruments;
use weir_front::{Front, ReplicaPorts};
use weir_redis_store::{
    OwnReplica, RedisStore, SealingKeyUse, SharedRecords, SharedReplays, StorePorts,
};
use weir_seal::{SealerKey, SealingKeyName};
use weir_singleton::{SingletonPorts, Singletons};
use weir_store::MemoryBus;

use crate::weir::errors::{StartError, front_reason, reason};
use crate::weir::shared_keys::cluster_tls;

/// The config digest of a config that does not come from files.
const NO_DIGEST: &str = "none";
/// The time that a start waits for the keys of the other replicas.
const KEYS_WAIT: Duration = Duration::from_secs(1);
/// The longest time for which another replica waits until this one has the lists that it announced.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// The links of one replica to the others.
pub(super) struct ReplicaLinks {
    store: Arc<RedisStore>,
    forwarder: Arc<PeerForwarder>,
    singletons: Arc<Singletons>,
    lists: Arc<ConfirmedLists>,
    /// The keys of the start: the cluster listener begins with them.
    tls: ClusterTls,
}

/// The parts of this replica that its links need.
pub(super) struct ReplicaBase {
    /// The name of this replica.
    pub(super) id: ReplicaId,
    pub(super) ports: StorePorts,
    pub(super) budgets: Budgets,
    pub(super) notifier: Arc<SessionNotifier>,
}

impl ReplicaLinks {
    /// Begins to connect to the shared store, if the config has one. Other replicas reach this one
    /// at `cluster`, the bound cluster listener, or at the address that the config advertises.
    ///
    /// # Errors
    /// The settings of the store or the sealing keys cannot be used.
    pub(super) fn start(
        config: &Config,
        base: ReplicaBase,
        cluster: Option<SocketAddr>,
    ) -> Result<Option<Self>, StartError> {
        let (StorePlan::Redis(settings), Some(bound)) = (&config.store, cluster) else {
            return Ok(None);
        };
        let advertised = config
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.advertise.clone());
        let own = OwnReplica {
            id: base.id,
            address: advertised.unwrap_or_else(|| bound.to_string().into()),
            version: env!("CARGO_PKG_VERSION").into(),
            config_digest: config_digest(config),
        };
        let tls = cluster_tls(&config.keys).map_err(StartError::Cluster)?;
        let (clock, random) = (base.ports.clock.clone(), base.ports.random.clone());
        let store = RedisStore::start(settings, own, base.ports)
            .map_err(|error| StartError::Store(error.to_string()))?;
        let forwarder = Arc::new(PeerForwarder::new(
            store.registry(),
            tls.clone(),
            base.budgets.clone(),
        ));
        let lease_time = config
            .cluster
            .as_ref()
            .map_or(ClusterSettings::DEFAULT_LEASE, |cluster| cluster.lease);
        let singletons = Singletons::new(SingletonPorts {
            own: store.registry().own().clone(),
            leases: store.leases(),
            lease_time,
            forwarder: forwarder.clone(),
            clock,
            random,
            budgets: base.budgets,
            notifier: base.notifier,
        });
        let lists = ConfirmedLists::new(store.lists(), store.registry(), forwarder.clone());
        start_at_zero();
        Ok(Some(Self {
            singletons,
            lists: Arc::new(lists),
            store: Arc::new(store),
            forwarder,
            tls,
        }))
    }

    /// Describes the other replicas for a successor process. `None` if the store has not answered
    /// yet.
    pub(super) fn export_view(&self) -> Option<String> {
        self.store.export_view()
    }

    /// Goes on with the other replicas as the previous process described them, until the store
    /// answers.
    pub(super) fn import_view(&self, description: &str) {
        self.store.import_view(description);
    }

    /// The records that replicas share, over those of this one.
    pub(super) fn records(
        &self,
        local: Arc<dyn RecordStore>,
        bus: &Arc<MemoryBus>,
    ) -> Arc<SharedRecords> {
        self.store.records(local, bus.clone())
    }

    /// Replay logs in the memory of this replica, with copies that other replicas find.
    pub(super) fn replays(&self, local: Arc<dyn ReplayLog>, age: Duration) -> Arc<SharedReplays> {
        self.store.replays(local, age)
    }

    /// The task book of this replica, with copies that other replicas find.
    pub(super) fn tasks(&self, local: Arc<dyn TaskBook>) -> Arc<dyn TaskBook> {
        self.store.tasks(local)
    }

    /// The counters that replicas share.
    pub(super) fn counters(&self) -> Arc<dyn SharedCounters> {
        self.store.counters()
    }

    /// The rates that replicas share.
    pub(super) fn rates(&self) -> Arc<dyn SharedRates> {
        self.store.rates()
    }

    /// The operators' changes that replicas share. Messages of the bus have others look at once.
    pub(super) fn changes(&self, bus: &Arc<MemoryBus>) -> Arc<dyn SharedChanges> {
        self.store.changes(bus.clone())
    }

    /// The lists of upstreams that replicas announce to each other.
    pub(super) fn lists(&self) -> Arc<dyn ListAnnouncements> {
        self.lists.clone()
    }

    /// Sends every message of the bus to the other replicas, and theirs to it.
    pub(super) fn link_bus(&self, bus: &Arc<MemoryBus>) {
        self.store.link_bus(bus);
    }

    /// The upstreams that one replica runs for all.
    pub(super) fn singletons(&self) -> &Arc<Singletons> {
        &self.singletons
    }

    /// The ports of the client side.
    pub(super) fn ports(&self) -> ReplicaPorts {
        ReplicaPorts {
            directory: self.store.registry(),
            forwarder: self.forwarder.clone(),
        }
    }

    /// Serves the requests of other replicas at the bound listener.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub(super) fn serve(
        &self,
        front: &Front,
        catalog: &Arc<Catalog>,
        listener: TcpListener,
    ) -> Result<(), StartError> {
        let failed = |error: std::io::Error| StartError::Cluster(reason(&error));
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        front
            .serve_replicas(listener, self.tls.server.clone())
            .map_err(|error| StartError::Cluster(front_reason(&error)))?;
        let follower = CatalogFollower(Arc::downgrade(catalog));
        let streams = ListStreams::new(
            self.lists.clone(),
            Arc::new(follower),
            self.singletons.clone(),
        );
        front.answer_streams(Arc::new(streams));
        Ok(())
    }

    /// The replicas and their store, for operators.
    pub(super) fn overview(&self) -> Arc<dyn ReplicaOverview> {
        Arc::new(StoreOverview(self.store.clone()))
    }

    /// Announces the config in force.
    pub(super) fn announce_config(&self, config: &Config) {
        self.store.set_config_digest(config_digest(config));
    }

    /// Waits a moment for the keys of the other replicas, before the first request: a replica without
    /// the key that they seal with is not ready. A store that does not answer delays this for a
    /// limited time.
    pub(super) async fn wait_for_keys(&self) {
        if let Err(error) = self.store.wait_for_view(KEYS_WAIT).await {
            tracing::warn!(%error, "sealing keys of other replicas not known yet");
        }
    }

    /// Replaces the sealing keys, and the keys of the connections between replicas. A new key opens
    /// from now on, and seals once every replica has it.
    pub(super) fn replace_keys(&self, keys: Vec<SealerKey>, tls: ClusterTls, front: &Front) {
        // Before the announcement: then every other replica that knows of a new key can use it here.
        front.use_replica_tls(tls.server.clone());
        self.forwarder.use_tls(tls);
        self.store.replace_keys(keys);
    }

    /// Returns a key that seals now, at any replica, and would be lost with these keys alone.
    pub(super) fn lost_key_use(&self, keys: &[SealingKeyName]) -> Option<SealingKeyUse> {
        self.store.lost_key_use(keys)
    }

    /// Lets other replicas take over the sessions of this one, before it drains. A successor process
    /// goes on under the name of this replica instead.
    pub(super) async fn begin_drain(&self, has_successor: bool) {
        if has_successor {
            self.store.leave_to_successor().await;
            return;
        }
        let unwritten = self.store.begin_drain().await;
        if unwritten > 0 {
            tracing::warn!(
                unwritten,
                "sessions not written to the shared store before the end"
            );
        }
    }

    /// Ends the links, after all requests.
    pub(super) async fn shutdown(&self, has_successor: bool) {
        self.singletons.shutdown().await;
        self.forwarder.shutdown().await;
        if has_successor {
            self.store.return_rate_tokens().await;
        } else {
            self.store.shutdown().await;
        }
    }
}

impl std::fmt::Debug for ReplicaLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaLinks")
            .field("own", self.store.registry().own())
            .finish_non_exhaustive()
    }
}

/// The lists of this replica, for replicas that announce theirs.
#[derive(Debug)]
struct CatalogFollower(Weak<Catalog>);

impl ListFollower for CatalogFollower {
    fn learn_announced(&self) {
        if let Some(catalog) = self.0.upgrade() {
            catalog.learn_announced();
        }
    }

    fn follow_announced(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            match self.0.upgrade() {
                Some(catalog) => catalog.follow_announced(FOLLOW_WAIT).await,
                None => false,
            }
        })
    }
}

/// The shared store and its registry, behind the port of operators.
#[derive(Debug)]
struct StoreOverview(Arc<RedisStore>);

impl ReplicaOverview for StoreOverview {
    fn own(&self) -> ReplicaId {
        self.0.registry().own().clone()
    }

    fn replicas(&self) -> Vec<ReplicaSeen> {
        self.0.registry().replicas()
    }

    fn missing_key(&self) -> Option<u8> {
        self.0.missing_key().map(|missing| missing.key)
    }

    fn store_state(&self) -> SharedStoreState {
        let status = self.0.status();
        SharedStoreState {
            is_connected: status.is_connected,
            last_error: status.last_error,
            latency: status.latency,
            pending_writes: status.pending_writes,
            warnings: status.warnings,
        }
    }
}

/// Starts the counters of replicas at 0: an alert would miss the first event of a series that
/// appears with it.
fn start_at_zero() {
    let all = instruments();
    for result in ["answered", "not_owner", "unreachable", "lost"] {
        all.forwarded.add(0, &[KeyValue::new("result", result)]);
    }
    for kind in ["write", "event", "task", "message"] {
        all.store_dropped.add(0, &[KeyValue::new("kind", kind)]);
    }
    all.store_missed.add(0, &[]);
    for operation in ["count", "locate", "take_tokens"] {
        let labels = [KeyValue::new("operation", operation)];
        all.store_fallbacks.add(0, &labels);
    }
    all.store_lost.add(0, &[]);
    for outcome in ["caught_up", "older_list"] {
        all.list_waits.add(0, &[KeyValue::new("outcome", outcome)]);
    }
}

fn config_digest(config: &Config) -> Arc<str> {
    config
        .source
        .short()
        .unwrap_or_else(|| NO_DIGEST.to_owned())
        .into()
}
