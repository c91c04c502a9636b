//! Stores of several servers: a primary server that a sentinel knows, and a cluster.

use std::net::TcpListener;
use std::time::Duration;

use weir_core::port::ReplicaDirectory as _;
use weir_replica_testkit::{RedisCluster, SentinelServers};

use super::replica::{
    FoundPlace, TestReplica, here, key, prompt, records_in, settings, shared_name, wait_for,
    wait_for_outage,
};
use super::shared_use::{BusPair, share_session_and_message};
use crate::{RedisSettings, RedisTopology};

/// The longest time for writes that waited for a server.
const WRITTEN: Duration = Duration::from_secs(60);
/// The key that keeps replicas from taking a store for one that was emptied.
pub(super) const BORN: &str = "{test:replicas}:born";

/// A cluster with data of old, and the settings for it.
pub(super) fn old_cluster() -> (RedisCluster, RedisSettings) {
    old_cluster_with(&[])
}

/// Like [`old_cluster`], with further directives for the nodes.
fn old_cluster_with(directives: &[[&str; 2]]) -> (RedisCluster, RedisSettings) {
    let cluster = RedisCluster::with_settings(directives);
    cluster.nodes()[cluster.node_of(BORN)].run(&["SET", BORN, "long ago"]);
    let store = RedisSettings {
        urls: cluster.urls(),
        ..settings("", RedisTopology::Cluster)
    };
    (cluster, store)
}

fn records_of(cluster: &RedisCluster) -> usize {
    cluster.nodes().iter().map(records_in).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_a_shared_store() {
    let (_cluster, store) = old_cluster();
    share_session_and_message(&store).await;
}

/// The node of the registry and that of a session move to another one: `ASK` while a slot is on its
/// way, `MOVED` afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_to_other_nodes_are_followed() {
    let (cluster, store) = old_cluster();
    let one = TestReplica::start_with(&store, 1).await;
    one.open(&key(1), "first").await;
    let with_record = cluster.nodes().iter().find(|node| records_in(node) == 1);
    let record = shared_name(with_record.expect("the record is in a node"), &key(1));
    for moved in [record.as_str(), BORN] {
        let target = (cluster.node_of(moved) + 1) % 3;
        cluster.begin_move(moved, target);
        prompt(one.change(&key(1), "asked")).await;
        assert_eq!(one.records.flush(WRITTEN).await, 0);
        cluster.end_move(moved, target);
        prompt(one.change(&key(1), "moved")).await;
        assert_eq!(one.records.flush(WRITTEN).await, 0);
        assert_eq!(cluster.node_of(moved), target);
    }
    assert_eq!(records_of(&cluster), 1);
    let two = TestReplica::start_with(&store, 2).await;
    assert_eq!(two.locate_without(&key(1), &one).await, here("moved"));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_never_answers_keeps_no_messages_from_replicas() {
    let (_cluster, mut store) = old_cluster();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound");
    store.urls.insert(0, format!("redis://{address}/"));
    let one = TestReplica::start_with(&store, 1).await;
    let two = TestReplica::start_with(&store, 2).await;
    BusPair::link(&one, &two).expect_message("body").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_without_one_of_its_nodes_is_an_outage_that_ends_with_it() {
    let (mut cluster, store) = old_cluster();
    let one = TestReplica::start_with(&store, 1).await;
    let two = TestReplica::start_with(&store, 2).await;
    two.wait_live(&[&one]).await;
    let mut buses = BusPair::link(&one, &two);
    buses.expect_message("before").await;
    one.open(&key(0), "value").await;
    // The first node: the one that is asked for the others, and for messages.
    for (number, ids) in [(0, 1..20), (cluster.node_of(BORN), 20..40)] {
        cluster.node_mut(number).kill();
        cluster.wait_down();
        for id in ids.clone() {
            prompt(one.open(&key(id), "value")).await;
        }
        wait_for("the outage", || !one.store.status().is_connected).await;
        assert_eq!(prompt(one.locate(&key(0), &one)).await, here("value"));
        assert!(one.records.pending_writes() > 0);
        cluster.node_mut(number).restart();
        cluster.wait_complete();
        assert_eq!(one.records.flush(WRITTEN).await, 0);
        wait_for("the end of it", || one.store.status().is_connected).await;
        assert_eq!(records_of(&cluster), usize::from(ids.end));
        buses.expect_message("after").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_node_of_a_cluster_is_an_outage_though_heartbeats_reach_another() {
    let (cluster, store) = old_cluster();
    let one = TestReplica::start_with(&store, 1).await;
    let full = &cluster.nodes()[other_node(&cluster)];
    full.run(&["CONFIG", "SET", "maxmemory", "1"]);
    for id in 0..30 {
        prompt(one.open(&key(id), "value")).await;
    }
    wait_for_outage(&one, "OOM").await;
    full.run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(one.records.flush(WRITTEN).await, 0);
    assert!(one.store.status().is_connected);
    assert_eq!(records_of(&cluster), 30);
}

/// The number of a node other than the one of the registry, which notices the loss of its own data.
fn other_node(cluster: &RedisCluster) -> usize {
    (cluster.node_of(BORN) + 1) % 3
}

// As a failover of the node does to a replica that lacks its data.
#[tokio::test(flavor = "multi_thread")]
async fn node_of_a_cluster_that_restarts_without_its_data_gets_all_sessions_again() {
    let (mut cluster, store) = old_cluster_with(&[["appendonly", "no"]]);
    let one = TestReplica::start_with(&store, 1).await;
    for id in 0..30 {
        one.open(&key(id), "value").await;
    }
    one.finish_writes().await;
    let lost = other_node(&cluster);
    cluster.node_mut(lost).restart();
    cluster.wait_complete();
    assert!(records_of(&cluster) < 30);
    wait_for("all sessions", || records_of(&cluster) == 30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_a_node_of_a_cluster_lost_unnoticed_are_written_at_the_stop_of_their_owner() {
    let (cluster, store) = old_cluster();
    let one = TestReplica::start_with(&store, 1).await;
    for id in 0..30 {
        one.open(&key(id), "value").await;
    }
    one.finish_writes().await;
    cluster.nodes()[other_node(&cluster)].flush();
    assert!(records_of(&cluster) < 30);
    assert_eq!(one.store.begin_drain().await, 0);
    assert_eq!(records_of(&cluster), 30);
}

/// Starts a primary server with data that are not new, its replica, and their sentinel.
fn watched_servers() -> SentinelServers {
    let servers = SentinelServers::start();
    servers.primary.run(&["SET", BORN, "long ago"]);
    servers
}

fn settings_of(servers: &SentinelServers) -> RedisSettings {
    let primary = "main".to_owned();
    settings(&servers.sentinel.url(), RedisTopology::Sentinel { primary })
}

#[tokio::test(flavor = "multi_thread")]
async fn primary_server_of_a_sentinel_is_a_shared_store() {
    let servers = watched_servers();
    share_session_and_message(&settings_of(&servers)).await;
    assert_eq!(records_in(&servers.primary), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_primary_server_after_a_failover_has_all_sessions() {
    let mut servers = watched_servers();
    let one = TestReplica::start_with(&settings_of(&servers), 1).await;
    let two = TestReplica::start_with(&settings_of(&servers), 2).await;
    two.wait_live(&[&one]).await;
    let mut buses = BusPair::link(&one, &two);
    buses.expect_message("before").await;
    for id in 0..5 {
        one.open(&key(id), "value").await;
    }
    servers.primary.kill();
    for id in 5..10 {
        prompt(one.open(&key(id), "value")).await;
        assert_eq!(prompt(one.locate(&key(0), &one)).await, here("value"));
    }
    assert_eq!(one.records.flush(WRITTEN).await, 0);
    wait_for("all sessions", || records_in(&servers.replica) == 10).await;
    buses.expect_message("after").await;
    // The old one comes back, and the sentinel makes it a replica of the new one.
    servers.primary.restart();
    // It closes its connections when its role changes.
    let info = || servers.primary.command(&["INFO", "replication"]);
    wait_for("the old server as a replica", || {
        info().is_ok_and(|info| info.text().contains("role:slave"))
    })
    .await;
    one.open(&key(10), "value").await;
    wait_for("the new session", || records_in(&servers.replica) == 11).await;
    one.crash();
    let registry = two.store.registry();
    wait_for("its end", || registry.address(&one.id).is_none()).await;
    assert_ne!(two.locate(&key(7), &one).await, FoundPlace::Gone);
    let is_here = async || two.locate(&key(7), &one).await == here("value");
    let begun = tokio::time::Instant::now();
    while !is_here().await {
        assert!(begun.elapsed() < WRITTEN, "the session is not taken over");
    }
}
