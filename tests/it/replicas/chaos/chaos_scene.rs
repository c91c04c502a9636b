//! The parts that faults hit: replicas, and proxies between them, Redis and a server.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_replica_testkit::free_port;
use weir_testkit::{FaultProxy, MockServer};

use super::super::COUNT;
use super::super::call_load;
use super::super::changing_list::{PAGE, tools};
use super::super::mixed_versions::earlier_program;
use super::chaos_blocks::ChaosBlocks;
use super::chaos_lists::ENDPOINT;
use super::chaos_store::{ChaosStore, PASSWORD, StoreKind, USER};
use crate::harness::{Replicas, SplitMixRandom};

/// The most parked calls of a replica.
const PARKED_CALLS: usize = 1000;

/// Replicas with all their neighbours.
pub(super) struct ChaosScene {
    pub(super) replicas: Replicas,
    pub(super) store: ChaosStore,
    pub(super) upstream: MockServer,
    /// The server whose list changes.
    pub(super) lists: Arc<MockServer>,
    pub(super) to_upstream: FaultProxy,
    /// Before a single Redis, for all replicas but one of the first.
    pub(super) to_redis: Option<FaultProxy>,
    /// Before the cluster listener of one of the first replicas.
    pub(super) to_peer: FaultProxy,
    pub(super) blocks: ChaosBlocks,
    /// The ids of the sealing keys, newest first.
    keys: Vec<usize>,
    /// An earlier weir, which replicas may run.
    earlier: Option<PathBuf>,
}

impl ChaosScene {
    pub(super) async fn start(kind: StoreKind) -> Self {
        let upstream = call_load::upstream().await;
        let to_upstream = FaultProxy::start(upstream.address()).await;
        let store = kind.start();
        let peer = free_port();
        let to_peer = FaultProxy::start(([127, 0, 0, 1], peer).into()).await;
        let mut config = super::super::config(&upstream);
        config["upstreams"]["one"]["url"] = json!(to_upstream.url("/mcp"));
        config["drain"] = json!("5s");
        // A parked call whose client lost its connection waits for ten minutes, in flight at the server.
        config["limits"]["parked_per_principal"] = json!(PARKED_CALLS);
        config["upstreams"]["one"]["limits"] = json!({ "in_flight": PARKED_CALLS });
        config["store"] = store.config();
        config["store"]["timeout"] = json!(super::super::DEFAULT_STORE_TIMEOUT);
        let lists = Arc::new(MockServer::modern().start().await);
        lists.set_tools(tools(0));
        config["upstreams"]["changing"] = json!({ "url": lists.url() });
        config["endpoints"][ENDPOINT] =
            json!({ "upstream": "changing", "page": { "items": PAGE } });
        let mut configs: Vec<Value> = vec![config; COUNT];
        configs[1]["cluster"]["listen"] = json!(format!("127.0.0.1:{peer}"));
        configs[1]["cluster"]["advertise"] = json!(to_peer.address().to_string());
        let to_redis = match &store {
            ChaosStore::Single(server) => Some(FaultProxy::start(server.address()).await),
            ChaosStore::Sentinel(_) | ChaosStore::Cluster(_) => None,
        };
        if let Some(to_redis) = &to_redis {
            let url = format!("redis://{USER}:{PASSWORD}@{}", to_redis.address());
            for number in [0, 2] {
                configs[number]["store"]["url"] = json!(url);
            }
        }
        Self {
            replicas: Replicas::with_stores(configs).await,
            store,
            upstream,
            lists,
            to_upstream,
            to_redis,
            to_peer,
            blocks: ChaosBlocks::default(),
            keys: vec![1, 2, 3],
            earlier: earlier_program(),
        }
    }

    /// Starts another replica, of the earlier weir once in two times if there is one.
    pub(super) fn start_another(&mut self, random: &mut SplitMixRandom) {
        let program = self.earlier.as_deref().filter(|_| random.once_in(2));
        self.replicas.use_program(program);
        self.replicas.start_another();
    }

    /// Has the next key seal, at every replica. All keys stay, so that none is lost.
    pub(super) fn rotate_keys(&mut self) {
        self.keys.rotate_left(1);
        self.replicas.set_keys(&self.keys);
    }
}
