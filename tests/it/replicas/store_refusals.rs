//! Clients are served while the shared store refuses writes or delays them, whatever the reason.

use std::path::Path;

use serde_json::{Value, json};
use weir_replica_testkit::{RedisCluster, RedisServer, RespValue, TlsFiles};
use weir_wire::Revision;

use super::store_outages::{call_everywhere, in_time, open_clients, upstream, use_new_session};
use super::{COUNT, at, config, open_at, start, use_session};
use crate::harness::{CheckedClient, Replicas, wait_until_async};

/// Commands that have a server refuse writes, and commands that end it.
const REFUSALS: [[&[&[&str]]; 2]; 4] = [
    [
        &[&["REPLICAOF", "127.0.0.1", "1"]],
        &[&["REPLICAOF", "NO", "ONE"]],
    ],
    [
        &[&["CONFIG", "SET", "maxmemory", "1"]],
        &[&["CONFIG", "SET", "maxmemory", "0"]],
    ],
    [
        &[&["CLIENT", "PAUSE", "600000", "WRITE"]],
        &[&["CLIENT", "UNPAUSE"]],
    ],
    [
        &[
            &["ACL", "SETUSER", "weir", "resetpass", ">another-of-a-test"],
            &["CLIENT", "KILL", "USER", "weir"],
        ],
        &[&["ACL", "SETUSER", "weir", "resetpass", ">kestrel-of-a-test"]],
    ],
];

/// Starts replicas with a store of this kind and the documented limits.
pub(super) async fn start_with(store: Value, upstream: &weir_testkit::MockServer) -> Replicas {
    let mut config = config(upstream);
    config["store"] = store;
    Replicas::with_store(COUNT, config).await
}

/// Waits until a session of a killed owner is taken over. Until the store is back the answer is 503.
pub(super) async fn expect_takeover(client: &CheckedClient, replicas: &mut Replicas, owner: usize) {
    replicas.kill(owner).await;
    let client = client.at_url(&replicas.url("/mcp"));
    wait_until_async("the take-over", async || {
        let answer = in_time(client.call("tool_0000", json!({}))).await;
        let is_over = answer.status == 200;
        assert!(is_over || answer.status == 503, "{}", answer.status);
        is_over.then_some(())
    })
    .await;
    use_session(&client, 3).await;
}

// Proves F07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_or_hangs_while_the_store_refuses_writes() {
    let upstream = upstream().await;
    let redis = RedisServer::start();
    redis.add_documented_user("kestrel-of-a-test");
    let store = json!({ "url": redis.url_of_user("weir", "kestrel-of-a-test") });
    let mut replicas = start_with(store, &upstream).await;
    let mut clients = open_clients(&replicas).await;
    for [begin, end] in REFUSALS {
        for command in begin {
            redis.run(command);
        }
        call_everywhere(&clients, &replicas).await;
        replicas.wait_until_store_is_missed().await;
        call_everywhere(&clients, &replicas).await;
        clients.push(use_new_session(&replicas).await);
        for command in end {
            redis.run(command);
        }
        replicas.wait_until_store_is_used().await;
    }
    replicas.wait_until_known().await;
    // A script that the server forgot is no failure at all.
    redis.run(&["SCRIPT", "FLUSH"]);
    clients.push(use_new_session(&replicas).await);
    call_everywhere(&clients, &replicas).await;
    expect_takeover(&clients[1], &mut replicas, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_without_the_store_is_refused_until_the_store_is_back() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let owned = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    replicas.redis().run(&["REPLICAOF", "127.0.0.1", "1"]);
    replicas.wait_until_store_is_missed().await;
    replicas.kill(0).await;
    let refused = at(&owned, &replicas, 1);
    let answer = in_time(refused.call("tool_0000", json!({}))).await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    replicas.redis().run(&["REPLICAOF", "NO", "ONE"]);
    wait_until_async("the take-over", async || {
        let answer = in_time(refused.call("tool_0000", json!({}))).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_user_over_tls_is_all_that_replicas_need() {
    let upstream = upstream().await;
    let files = TlsFiles::new();
    let redis = RedisServer::with_tls(&files);
    redis.add_documented_user("kestrel-of-a-test");
    let store = json!({
        "url": files.url_of_user("weir", "kestrel-of-a-test"),
        "ca_file": Path::display(&files.authority_file()).to_string(),
    });
    let mut replicas = start_with(store, &upstream).await;
    let clients = open_clients(&replicas).await;
    call_everywhere(&clients, &replicas).await;
    expect_takeover(&clients[1], &mut replicas, 0).await;
    assert_eq!(redis.run(&["ACL", "LOG"]), RespValue::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_while_a_cluster_lacks_one_of_its_nodes() {
    let upstream = upstream().await;
    let mut cluster = RedisCluster::start();
    let store = json!({ "kind": "cluster", "url": cluster.urls() });
    let mut replicas = start_with(store, &upstream).await;
    let mut clients = open_clients(&replicas).await;
    let number = cluster.node_of("{weir:replicas}:born");
    cluster.node_mut(number).kill();
    cluster.wait_down();
    replicas.wait_until_store_is_missed().await;
    call_everywhere(&clients, &replicas).await;
    clients.push(use_new_session(&replicas).await);
    cluster.node_mut(number).restart();
    cluster.wait_complete();
    replicas.wait_until_store_is_used().await;
    replicas.wait_until_known().await;
    call_everywhere(&clients, &replicas).await;
    expect_takeover(&clients[1], &mut replicas, 0).await;
}
