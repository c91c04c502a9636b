//! The servers of the shared store that faults hit, in each of the ways to run them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use weir_replica_testkit::{RedisCluster, RedisServer, SentinelServers};

use crate::harness::SplitMixRandom;

/// The user of weir in Redis, with the rights of the documentation alone.
pub(super) const USER: &str = "weir";
pub(super) const PASSWORD: &str = "kestrel-of-a-test";

const SETTINGS: [[&str; 2]; 1] = [RedisServer::DEBUG_COMMANDS];

/// The way in which the shared store runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// One server.
    Single,
    /// A primary server with a copy that takes its place, and a sentinel.
    Sentinel,
    /// A cluster of three servers without copies.
    Cluster,
}

impl StoreKind {
    pub(super) const ALL: [Self; 3] = [Self::Single, Self::Sentinel, Self::Cluster];

    /// Starts the servers, with the user of weir.
    pub(super) fn start(self) -> ChaosStore {
        let mut store = match self {
            Self::Single => ChaosStore::Single(RedisServer::with_settings(&SETTINGS)),
            Self::Sentinel => ChaosStore::Sentinel(SentinelServers::with_settings(&SETTINGS)),
            Self::Cluster => ChaosStore::Cluster(RedisCluster::with_settings(&SETTINGS)),
        };
        store.settle();
        store
    }
}

/// Running servers.
pub(super) enum ChaosStore {
    Single(RedisServer),
    Sentinel(SentinelServers),
    Cluster(RedisCluster),
}

impl ChaosStore {
    /// Returns the `store` of a config.
    pub(super) fn config(&self) -> Value {
        let url = |server: &RedisServer| server.url_of_user(USER, PASSWORD);
        match self {
            Self::Single(server) => json!({ "url": url(server) }),
            Self::Sentinel(servers) => json!({
                "kind": "sentinel",
                "primary": "main",
                "url": url(&servers.sentinel),
            }),
            Self::Cluster(cluster) => {
                let urls: Vec<_> = cluster.nodes().iter().map(url).collect();
                json!({ "kind": "cluster", "url": urls })
            }
        }
    }

    /// Returns the servers with data.
    fn data_servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Single(server) => vec![server],
            Self::Sentinel(servers) => vec![&servers.primary, &servers.replica],
            Self::Cluster(cluster) => cluster.nodes().iter().collect(),
        }
    }

    /// Returns a server that takes writes.
    pub(super) fn pick_primary(&mut self, random: &mut SplitMixRandom) -> &mut RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Sentinel(servers) => &mut servers.primary,
            Self::Cluster(cluster) => {
                let number = random.below(cluster.nodes().len());
                cluster.node_mut(number)
            }
        }
    }

    /// Ends the primary server after its copy missed the writes of this time, and starts it again as
    /// the copy.
    pub(super) async fn fail_over(&mut self, missed: Duration) {
        let Self::Sentinel(servers) = self else {
            panic!("a store without a copy");
        };
        servers.pause_replica();
        sleep(missed).await;
        servers.kill_primary();
        servers.wait_until_replica_is_primary();
        servers.primary.restart();
    }

    /// Moves a slot of a cluster to another server, in this time.
    pub(super) async fn move_slot(&self, random: &mut SplitMixRandom, time: Duration) {
        let Self::Cluster(cluster) = self else {
            panic!("a store without slots");
        };
        let mut keys: Vec<_> = cluster.nodes().iter().flat_map(RedisServer::keys).collect();
        keys.sort_unstable();
        if keys.is_empty() {
            return;
        }
        let key = random.pick(&keys);
        let other = 1 + random.below(cluster.nodes().len() - 1);
        let to = (cluster.node_of(key) + other) % cluster.nodes().len();
        cluster.begin_move(key, to);
        sleep(time).await;
        cluster.end_move(key, to);
    }

    /// Waits until the servers are whole, and lets weir use them all: a server that starts knows no
    /// users, and a fault may have changed the password.
    pub(super) fn settle(&mut self) {
        match self {
            Self::Single(_) => {}
            Self::Sentinel(servers) => servers.settle(),
            Self::Cluster(cluster) => cluster.wait_complete(),
        }
        for server in self.data_servers() {
            server.add_documented_user(PASSWORD);
        }
    }
}
