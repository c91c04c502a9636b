//! The parts that faults hit: replicas, and proxies between them, Redis and a server.

use serde_json::{Value, json};
use weir_replica_testkit::{RedisServer, free_port};
use weir_testkit::{FaultProxy, MockServer};

use super::super::COUNT;
use super::super::call_load;
use crate::harness::Replicas;

/// The user of weir in Redis, with the rights of the documentation alone.
pub(super) const USER: &str = "weir";
pub(super) const PASSWORD: &str = "kestrel-of-a-test";

/// Replicas with all their neighbours.
pub(super) struct ChaosScene {
    pub(super) replicas: Replicas,
    pub(super) upstream: MockServer,
    pub(super) to_upstream: FaultProxy,
    /// Before Redis, for all replicas but one of the first.
    pub(super) to_redis: FaultProxy,
    /// Before the cluster listener of one of the first replicas.
    pub(super) to_peer: FaultProxy,
    /// The ids of the sealing keys, newest first.
    keys: Vec<usize>,
}

impl ChaosScene {
    pub(super) async fn start() -> Self {
        let upstream = call_load::upstream().await;
        let to_upstream = FaultProxy::start(upstream.address()).await;
        let redis = RedisServer::start();
        redis.add_documented_user(PASSWORD);
        let to_redis = FaultProxy::start(redis.address()).await;
        let peer = free_port();
        let to_peer = FaultProxy::start(([127, 0, 0, 1], peer).into()).await;
        let mut config = super::super::config(&upstream);
        config["upstreams"]["one"]["url"] = json!(to_upstream.url("/mcp"));
        config["drain"] = json!("5s");
        // A parked call whose client lost its connection waits for ten minutes.
        config["limits"]["parked_per_principal"] = json!(1000);
        let url = redis.url_of_user(USER, PASSWORD);
        let port = |address: std::net::SocketAddr| format!(":{}", address.port());
        let through_proxy = url.replace(&port(redis.address()), &port(to_redis.address()));
        config["store"]["url"] = json!(through_proxy);
        let mut configs: Vec<Value> = vec![config; COUNT];
        configs[1]["store"]["url"] = json!(url);
        configs[1]["cluster"]["listen"] = json!(format!("127.0.0.1:{peer}"));
        configs[1]["cluster"]["advertise"] = json!(to_peer.address().to_string());
        Self {
            replicas: Replicas::with_configs(configs, redis).await,
            upstream,
            to_upstream,
            to_redis,
            to_peer,
            keys: vec![1, 2, 3],
        }
    }

    /// Has the next key seal, at every replica. All keys stay, so that none is lost.
    pub(super) fn rotate_keys(&mut self) {
        self.keys.rotate_left(1);
        self.replicas.set_keys(&self.keys);
    }
}
