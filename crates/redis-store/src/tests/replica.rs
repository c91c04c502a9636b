//! A replica for tests: its store, its records, and waits for conditions.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use weir_core::Principal;
use weir_core::port::{
    RecordKey, RecordPlace, RecordStore as _, ReplicaDirectory as _, ReplicaId, ReplicaSeen,
    StoreError, WriteCondition, WriteOutcome,
};
use weir_replica_testkit::RedisServer;
use weir_seal::{Sealer, SealerKey};
use weir_store::{MemoryBus, MemoryRecords, RecordCaps};
use weir_testkit::{FakeRandom, TokioClock, wait_for_condition};

use crate::{OwnReplica, RedisSettings, RedisStore, RedisTopology, SharedRecords, StorePorts};

/// The time limit of commands in tests: generous, because the machine is busy.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit of commands for a server that does not answer in time.
pub(super) const SHORT_COMMAND_TIMEOUT: Duration = Duration::from_millis(500);
/// The time to live of records.
pub(super) const TTL: Duration = Duration::from_secs(600);
/// The longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(40);
/// The pause between looks at a condition.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A store and its records.
pub(super) struct TestReplica {
    pub(super) id: ReplicaId,
    pub(super) store: RedisStore,
    pub(super) local: Arc<MemoryRecords>,
    pub(super) records: Arc<SharedRecords>,
    /// The bus of its records. It is linked to others by a test that needs it.
    pub(super) bus: Arc<MemoryBus>,
}

impl TestReplica {
    /// Starts a replica and waits for its first heartbeat.
    pub(super) async fn start(server: &RedisServer, number: u8) -> Self {
        Self::start_on(&server.url(), RedisTopology::Single, number).await
    }

    /// Starts a replica with servers of this kind, and waits for its first heartbeat.
    pub(super) async fn start_on(url: &str, topology: RedisTopology, number: u8) -> Self {
        Self::start_with(&settings(url, topology), number).await
    }

    /// Starts a replica with these settings, and waits for its first heartbeat.
    pub(super) async fn start_with(settings: &RedisSettings, number: u8) -> Self {
        Self::unconnected_with(settings, number).connected().await
    }

    /// Waits for the first heartbeat.
    async fn connected(self) -> Self {
        wait_for("the first heartbeat", || self.store.registry().has_view()).await;
        self
    }

    /// Starts a replica, with a server or without.
    pub(super) fn start_unconnected(url: &str, topology: RedisTopology, number: u8) -> Self {
        Self::unconnected_with(&settings(url, topology), number)
    }

    /// Starts a replica with these settings, with a server or without.
    pub(super) fn unconnected_with(settings: &RedisSettings, number: u8) -> Self {
        Self::begin(settings, number, keys(&[1]))
    }

    /// Starts a replica with keys of these ids, newest first, and waits until it has seen the
    /// others.
    pub(super) async fn start_with_keys(server: &RedisServer, number: u8, ids: &[u8]) -> Self {
        let settings = settings(&server.url(), RedisTopology::Single);
        let replica = Self::begin(&settings, number, keys(ids)).connected().await;
        let viewed = replica.store.wait_for_view(PATIENCE).await;
        viewed.expect("the store answers");
        replica
    }

    fn begin(settings: &RedisSettings, number: u8, keys: Vec<SealerKey>) -> Self {
        let id = ReplicaId([number; 8]);
        let own = OwnReplica {
            id: id.clone(),
            address: format!("10.0.0.{number}:7946").into(),
            version: "1.0".into(),
            config_digest: "c0".into(),
        };
        let clock = Arc::new(TokioClock::new());
        let ports = StorePorts {
            clock: clock.clone(),
            random: Arc::new(FakeRandom::new(u64::from(number))),
            sealer: Sealer::new(keys),
        };
        let store = RedisStore::start(settings, own, ports).expect("valid settings");
        let local = Arc::new(MemoryRecords::new(clock, RecordCaps::default()));
        let bus = Arc::<MemoryBus>::default();
        let records = store.records(local.clone(), bus.clone());
        Self {
            id,
            store,
            local,
            records,
            bus,
        }
    }

    /// Waits until its records are in the server.
    pub(super) async fn finish_writes(&self) {
        assert_eq!(self.records.flush(PATIENCE).await, 0);
    }

    /// Opens a session.
    pub(super) async fn open(&self, key: &RecordKey, value: &'static str) {
        self.open_for(key, value, TTL).await;
    }

    /// Opens a session with a time to live of its own.
    pub(super) async fn open_for(&self, key: &RecordKey, value: &'static str, ttl: Duration) {
        let absent = WriteCondition::Absent;
        let stored = self.records.store(key, value.into(), ttl, absent).await;
        assert!(matches!(stored, Ok(WriteOutcome::Stored(_))), "{stored:?}");
    }

    /// Changes a session that is here.
    pub(super) async fn change(&self, key: &RecordKey, value: &'static str) {
        let found = self.records.load(key, None).await.expect("loaded");
        let known = WriteCondition::Version(found.expect("it is here").version);
        let stored = self.records.store(key, value.into(), TTL, known).await;
        assert!(matches!(stored, Ok(WriteOutcome::Stored(_))), "{stored:?}");
    }

    /// Locates a session.
    pub(super) async fn locate(&self, key: &RecordKey, opened_by: &Self) -> FoundPlace {
        found(self.records.locate(key, Some(TTL), &opened_by.id).await)
    }

    /// Locates a session while its owner cannot be reached.
    pub(super) async fn locate_without(&self, key: &RecordKey, owner: &Self) -> FoundPlace {
        loop {
            self.give_up(owner);
            let place = self.locate(key, owner).await;
            // A heartbeat of the owner may have come in between.
            if place != FoundPlace::Elsewhere(owner.id.clone()) {
                return place;
            }
        }
    }

    /// Waits until this replica sees that number of live replicas besides itself.
    pub(super) async fn wait_live(&self, others: &[&Self]) {
        let registry = self.store.registry();
        let are_live = || others.iter().all(|one| registry.address(&one.id).is_some());
        wait_for("live replicas", are_live).await;
    }

    /// Has this replica regard another one as ended.
    pub(super) fn give_up(&self, other: &Self) {
        self.store.registry().report_unreachable(&other.id);
    }

    /// Ends its tasks at once, as a killed process.
    pub(super) fn crash(&self) {
        self.store.abort_tasks();
    }

    /// Another replica as this one sees it.
    pub(super) fn seen(&self, other: &Self) -> Option<ReplicaSeen> {
        let all = self.store.registry().replicas();
        all.into_iter().find(|one| one.id == other.id)
    }
}

/// The place of a record, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FoundPlace {
    Here(String),
    Elsewhere(ReplicaId),
    Gone,
    Failed(String),
}

fn found(place: Result<RecordPlace, StoreError>) -> FoundPlace {
    match place {
        Ok(RecordPlace::Here(record) | RecordPlace::TakenOver(record)) => {
            FoundPlace::Here(String::from_utf8_lossy(&record.value).into_owned())
        }
        Ok(RecordPlace::Elsewhere(id)) => FoundPlace::Elsewhere(id),
        Ok(RecordPlace::Gone) => FoundPlace::Gone,
        Err(StoreError(text)) => FoundPlace::Failed(text),
    }
}

/// The keys of these ids.
pub(super) fn keys(ids: &[u8]) -> Vec<SealerKey> {
    let key = |id: &u8| SealerKey::new(*id, &[id + 6; 32]);
    ids.iter().map(key).collect()
}

/// A place that is here, with this value.
pub(super) fn here(value: &str) -> FoundPlace {
    FoundPlace::Here(value.to_owned())
}

/// The settings of a store with servers of this kind.
pub(super) fn settings(url: &str, topology: RedisTopology) -> RedisSettings {
    RedisSettings {
        urls: vec![url.to_owned()],
        topology,
        authorities: None,
        namespace: "test".to_owned(),
        command_timeout: COMMAND_TIMEOUT,
    }
}

/// The settings of a store with one server that does not answer in time.
pub(super) fn impatient_settings(url: &str) -> RedisSettings {
    RedisSettings {
        command_timeout: SHORT_COMMAND_TIMEOUT,
        ..settings(url, RedisTopology::Single)
    }
}

/// A server with data of old, so that replicas do not take it for one that was emptied.
pub(super) fn old_server() -> RedisServer {
    let server = RedisServer::start();
    server.run(&["SET", "{test:replicas}:born", "long ago"]);
    server
}

/// The key of a session of the principal `ada`.
pub(super) fn key(id: u8) -> RecordKey {
    RecordKey {
        principal: Principal::owner(Some(("iss", "ada"))),
        id: [id; 16],
    }
}

/// The name of a session in the server.
pub(super) fn shared_name(server: &RedisServer, key: &RecordKey) -> String {
    let id = data_encoding::HEXLOWER.encode(&key.id);
    let all = server.keys();
    let name = all.into_iter().find(|name| name.ends_with(&id));
    name.expect("the record is in the server")
}

/// The longest time for a call that may wait for the server: far above the time limit of commands,
/// because the machine is busy, and far below that of a call that waits for the server itself.
const PROMPT: Duration = Duration::from_secs(20);

/// Makes a call that may not hang, whatever the server does.
pub(super) async fn prompt<T>(call: impl Future<Output = T>) -> T {
    let begun = tokio::time::Instant::now();
    let outcome = call.await;
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    outcome
}

/// Counts the sessions in the server.
pub(super) fn records_in(server: &RedisServer) -> usize {
    let names = server.keys();
    names.iter().filter(|name| name.contains(":s:")).count()
}

/// Waits until a replica reports that its store is of no use, with this text in the reason.
pub(super) async fn wait_for_outage(replica: &TestReplica, reason: &str) {
    let begun = tokio::time::Instant::now();
    loop {
        let status = replica.store.status();
        let error = status.last_error.unwrap_or_default();
        if !status.is_connected && error.contains(reason) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no {reason}, but {error}");
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Waits for a condition.
pub(super) async fn wait_for(name: &str, is_met: impl FnMut() -> bool) {
    wait_for_condition(name, PATIENCE, is_met).await;
}
