//! Rates, leases and changed lists in a cluster: each bucket and each lease is one key, on the node of
//! its slot.

use std::time::Duration;

use weir_core::port::{
    LeaseIntent, LeaseState, LeaseStore as _, LeaseToken, ListAnnouncements as _,
};
use weir_replica_testkit::{RedisCluster, RedisServer, RespValue};

use super::lease_tests::{Asker, LEASE, LONG};
use super::list_tests::{announced, group};
use super::rate_tests::{DAY, granted, passed_after_outage, rate, take};
use super::replica::{TestReplica, key, settings, wait_for};
use super::shared_use::BusPair;
use super::topology_tests::{BORN, old_cluster};
use crate::{RedisSettings, RedisTopology};

/// The key of the lease.
fn lease_key() -> String {
    format!("test:u:{LEASE}")
}

/// The numbers of the nodes with a bucket of these limits.
fn nodes_with_buckets(cluster: &RedisCluster) -> Vec<usize> {
    let has_bucket = |number: &usize| {
        let names = cluster.nodes()[*number].keys();
        names.iter().any(|name| name.contains(":r:calls:"))
    };
    (0..3).filter(has_bucket).collect()
}

fn bucket_key(limit: u64) -> String {
    format!("test:r:calls:{limit:016x}:{}", "09".repeat(16))
}

/// The tokens of a bucket.
fn tokens_in(cluster: &RedisCluster, name: &str) -> f64 {
    let node = &cluster.nodes()[cluster.node_of(name)];
    let text = node.run(&["GET", name]).text();
    let tokens = text.split(' ').next().and_then(|text| text.parse().ok());
    tokens.unwrap_or(f64::MAX)
}

async fn two_replicas(store: &RedisSettings) -> [TestReplica; 2] {
    let one = TestReplica::start_with(store, 1).await;
    let two = TestReplica::start_with(store, 2).await;
    one.wait_live(&[&two]).await;
    two.wait_live(&[&one]).await;
    [one, two]
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_are_one_over_replicas_and_spread_over_the_nodes() {
    let (cluster, store) = old_cluster();
    let [one, two] = two_replicas(&store).await;
    let (first, second) = (one.store.rates(), two.store.rates());
    let rates = [&*first, &*second];
    for limit in 0..12 {
        let rate = rate(10, DAY, 10);
        assert_eq!(granted(&rates, limit, &rate, 20).await, 10, "{limit}");
    }
    assert_eq!(nodes_with_buckets(&cluster), [0, 1, 2]);
    // From 100/s on by leases.
    let leased = rate(100_000_000, DAY, 500);
    let passed = granted(&rates, 100, &leased, 400).await;
    assert!((350..=400).contains(&passed), "{passed}");
}

/// `ASK` while the slot of a bucket is on its way, `MOVED` afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_keeps_its_tokens_while_its_slot_moves() {
    let (cluster, store) = old_cluster();
    let [one, two] = two_replicas(&store).await;
    let (first, second) = (one.store.rates(), two.store.rates());
    let (rates, rate) = ([&*first, &*second], rate(30, DAY, 30));
    assert_eq!(granted(&rates, 1, &rate, 10).await, 10);
    let name = bucket_key(1);
    let target = (cluster.node_of(&name) + 1) % 3;
    cluster.begin_move(&name, target);
    assert_eq!(granted(&rates, 1, &rate, 10).await, 10);
    // A bucket of the slot that nobody used yet is made at the new node.
    cluster.end_move(&name, target);
    assert_eq!(granted(&rates, 1, &rate, 30).await, 10);
    assert_eq!(cluster.node_of(&name), target);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_node_leaves_each_replica_its_share_until_it_is_back() {
    let (mut cluster, store) = old_cluster();
    let [one, two] = two_replicas(&store).await;
    let (first, second) = (one.store.rates(), two.store.rates());
    let (rates, rate) = ([&*first, &*second], rate(40, DAY, 40));
    assert_eq!(granted(&rates, 1, &rate, 20).await, 20);
    let node = cluster.node_of(&bucket_key(1));
    cluster.node_mut(node).kill();
    cluster.wait_down();
    for rates in rates {
        assert_eq!(
            granted(&[rates], 1, &rate, 80).await,
            10,
            "half, less its part of 20"
        );
        assert!(take(rates, 2, &rate).await.is_ok());
    }
    cluster.node_mut(node).restart();
    cluster.wait_complete();
    for replica in [&one, &two] {
        wait_for("the store", || replica.store.status().is_connected).await;
    }
    // The node has the bucket with 20 tokens, and the replicas owe it those that they admitted alone.
    let name = bucket_key(1);
    let has_tokens = || tokens_in(&cluster, &name) >= 1.0;
    let passed = passed_after_outage(&rates, 1, &rate, has_tokens).await;
    assert!(passed <= 4, "{passed} beside the 40");
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_stays_with_its_holder_while_its_slot_moves() {
    let (cluster, store) = old_cluster();
    let [one, two] = two_replicas(&store).await;
    let mut one = Asker::of(one, LeaseToken([1; 8]));
    let two = Asker::of(two, LeaseToken([2; 8]));
    let first = one.take_first().await;
    let name = lease_key();
    let target = (cluster.node_of(&name) + 1) % 3;
    cluster.begin_move(&name, target);
    expect_holder(&one, first, &two).await;
    cluster.end_move(&name, target);
    expect_holder(&one, first, &two).await;
    assert_eq!(cluster.node_of(&name), target);
    one.is_held = false;
    one.ask(LeaseIntent::Release, LONG).await;
    let free = two.ask(LeaseIntent::Look, LONG).await;
    assert!(matches!(free, LeaseState::Free { .. }), "{free:?}");
}

/// The holder renews its lease, and the other one sees it as the holder.
async fn expect_holder(holder: &Asker, epoch: u64, other: &Asker) {
    let renewed = holder.ask_patiently(LeaseIntent::Take, LONG).await;
    assert_eq!(renewed, LeaseState::Own { epoch });
    let seen = other.ask_patiently(LeaseIntent::Take, LONG).await;
    assert!(
        matches!(&seen, LeaseState::Other { replica, .. } if *replica == holder.replica.id),
        "{seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_outlives_the_loss_of_its_node() {
    let (mut cluster, store) = old_cluster();
    let [one, two] = two_replicas(&store).await;
    let mut one = Asker::of(one, LeaseToken([1; 8]));
    let two = Asker::of(two, LeaseToken([2; 8]));
    let first = one.take_first().await;
    let node = cluster.node_of(&lease_key());
    cluster.node_mut(node).kill();
    cluster.wait_down();
    let lost = two.replica.store.leases();
    let asked = lost.ask(two.request(LeaseIntent::Take, LONG)).await;
    assert!(asked.is_err(), "{asked:?}");
    cluster.node_mut(node).restart();
    cluster.wait_complete();
    // Another run of the node may lack the last renewals: the other one must wait for as long as a
    // holder may go on, and the holder goes on.
    let waits = two.ask_patiently(LeaseIntent::Take, LONG).await;
    assert!(
        matches!(waits, LeaseState::Free { after } if after > Duration::ZERO)
            || matches!(waits, LeaseState::Other { .. }),
        "{waits:?}"
    );
    let state = one.ask_patiently(LeaseIntent::Take, LONG).await;
    assert!(
        matches!(state, LeaseState::Own { epoch } if epoch >= first),
        "{state:?}"
    );
}

/// The commands in a server's log of refusals, but for the name of the library, which the client of a
/// cluster states to every node that knows the command.
fn refused_commands(node: &RedisServer) -> Vec<String> {
    let RespValue::Array(entries) = node.run(&["ACL", "LOG"]) else {
        panic!("no log of refusals");
    };
    let object = |entry: &RespValue| {
        let fields = entry.texts();
        let at = fields.iter().position(|field| field == "object");
        at.and_then(|at| fields.get(at + 1).cloned())
            .unwrap_or_default()
    };
    let mut refused: Vec<_> = entries.iter().map(object).collect();
    refused.retain(|command| command != "client|setinfo");
    refused
}

/// Rates, leases, changed lists and sessions with the rights of the documentation, and no command
/// that they refuse.
#[tokio::test(flavor = "multi_thread")]
async fn documented_user_may_do_in_a_cluster_what_replicas_do() {
    let cluster = RedisCluster::start();
    for node in cluster.nodes() {
        node.add_documented_user("secret");
    }
    let born = BORN.replace("test", "weir");
    cluster.nodes()[cluster.node_of(&born)].run(&["SET", &born, "long ago"]);
    let nodes = cluster.nodes().iter();
    let urls = nodes.map(|node| node.url_of_user("weir", "secret"));
    let store = RedisSettings {
        urls: urls.collect(),
        namespace: "weir".to_owned(),
        ..settings("", RedisTopology::Cluster)
    };
    let [one, two] = two_replicas(&store).await;
    one.open(&key(1), "value").await;
    assert_eq!(one.records.flush(Duration::from_secs(40)).await, 0);
    let (first, second) = (one.store.rates(), two.store.rates());
    let rate = rate(10, DAY, 10);
    assert_eq!(granted(&[&first, &second], 1, &rate, 20).await, 10);
    let lists = announced(1);
    let written = one.store.lists().announce(&group("files"), lists).await;
    written.expect("the lists are written");
    let _buses = BusPair::link(&one, &two);
    let seen = two.store.lists().watch();
    wait_for("the lists", || seen.borrow().contains_key(&group("files"))).await;
    let mut one = Asker::of(one, LeaseToken([1; 8]));
    let two = Asker::of(two, LeaseToken([2; 8]));
    let epoch = one.take_first().await;
    expect_holder(&one, epoch, &two).await;
    one.is_held = false;
    one.ask(LeaseIntent::Release, LONG).await;
    for node in cluster.nodes() {
        assert_eq!(refused_commands(node), [] as [String; 0]);
    }
}
