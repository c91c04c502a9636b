//! A cluster of three real servers, for tests of redirections and of an outage of one of them.

use std::time::Duration;

use crate::free_port::free_port;
use crate::poll_pause::wait_until;
use crate::redis_server::{RedisServer, RespValue};

/// The most time for the nodes to agree.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The slots of the nodes, first and last.
const SLOTS: [[&str; 2]; 3] = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];

/// Three nodes that share all slots. Without a replica: while one node is down, all of them answer
/// `CLUSTERDOWN`.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: [RedisServer; 3],
}

impl RedisCluster {
    /// Starts three nodes, and waits until each of them knows the cluster as complete.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, a node does not start, or the nodes do not agree.
    #[must_use]
    pub fn start() -> Self {
        Self::with_settings(&[])
    }

    /// Starts three nodes with further directives of their config.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, a node does not start, or the nodes do not agree.
    #[must_use]
    pub fn with_settings(settings: &[[&str; 2]]) -> Self {
        let nodes = SLOTS.map(|_| start_node(settings));
        let [first, others @ ..] = &nodes;
        for (node, [from, to]) in nodes.iter().zip(SLOTS) {
            node.run(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
        }
        for other in others {
            let port = other.address().port().to_string();
            let bus = bus_port(other).to_string();
            first.run(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self { nodes };
        cluster.wait_complete();
        cluster
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer; 3] {
        &self.nodes
    }

    /// Returns a node, to kill or restart it.
    ///
    /// # Panics
    /// There are fewer nodes.
    pub fn node_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.nodes[number]
    }

    /// The URLs of the nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The number of the node that has a key's slot.
    ///
    /// # Panics
    /// No node has it, or a node does not answer.
    #[must_use]
    pub fn node_of(&self, key: &str) -> usize {
        let is_here = |node: &RedisServer| {
            !matches!(
                node.command(&["EXISTS", key]),
                Ok(RespValue::Error(_)) | Err(_)
            )
        };
        let number = self.nodes.iter().position(is_here);
        number.unwrap_or_else(|| panic!("no node has the slot of {key}"))
    }

    /// Begins to move the slot of a key to another node, and moves its keys: the old node answers
    /// `ASK` for them.
    ///
    /// # Panics
    /// A node refuses.
    pub fn begin_move(&self, key: &str, to: usize) {
        let from = &self.nodes[self.node_of(key)];
        let slot = from.run(&["CLUSTER", "KEYSLOT", key]).text();
        let target = &self.nodes[to];
        target.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(target)]);
        let keys = from
            .run(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"])
            .texts();
        let port = target.address().port().to_string();
        for key in keys {
            from.run(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
        }
    }

    /// Ends the move of [`Self::begin_move`]: other nodes answer `MOVED` from now on.
    ///
    /// # Panics
    /// A node refuses.
    pub fn end_move(&self, key: &str, to: usize) {
        let target = &self.nodes[to];
        let slot = target.run(&["CLUSTER", "KEYSLOT", key]).text();
        let id = id_of(target);
        // The target first, so that its claim is the newest.
        target.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        for (number, node) in self.nodes.iter().enumerate() {
            if number != to {
                node.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
            }
        }
    }

    /// Waits until every node knows the cluster as complete.
    ///
    /// # Panics
    /// The nodes do not agree in a minute.
    pub fn wait_complete(&self) {
        let is_complete = |node: &RedisServer| {
            let info = node.run(&["CLUSTER", "INFO"]).text();
            [
                "cluster_state:ok",
                "cluster_known_nodes:3",
                "cluster_slots_ok:16384",
            ]
            .iter()
            .all(|line| info.contains(line))
        };
        wait_until(AGREEMENT_TIMEOUT, "the nodes do not agree", || {
            self.nodes.iter().all(is_complete)
        });
    }

    /// Waits until every node that answers reports an incomplete cluster.
    ///
    /// # Panics
    /// A node still takes the cluster for complete after a minute.
    pub fn wait_down(&self) {
        let is_down = |node: &RedisServer| {
            let info = node.command(&["CLUSTER", "INFO"]);
            info.map_or(true, |info| info.text().contains("cluster_state:fail"))
        };
        wait_until(AGREEMENT_TIMEOUT, "the cluster stays complete", || {
            self.nodes.iter().all(is_down)
        });
    }
}

fn start_node(settings: &[[&str; 2]]) -> RedisServer {
    let bus = free_port().to_string();
    let of_cluster = [
        ["cluster-enabled", "yes"],
        ["cluster-config-file", "nodes.conf"],
        ["cluster-node-timeout", "5000"],
        ["cluster-port", &bus],
    ];
    RedisServer::with_settings(&[&of_cluster, settings].concat())
}

fn id_of(node: &RedisServer) -> String {
    node.run(&["CLUSTER", "MYID"]).text()
}

fn bus_port(node: &RedisServer) -> u16 {
    let port = node.run(&["CONFIG", "GET", "cluster-port"]).texts();
    let port = port.last().and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("the node has no port for other nodes"))
}
