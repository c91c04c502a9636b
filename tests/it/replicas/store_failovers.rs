//! Another server becomes the primary one of the shared store.

use serde_json::json;
use weir_replica_testkit::{RedisServer, RespValue, SentinelServers};
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::store_outages::{call_everywhere, open_clients, upstream, use_new_session};
use super::store_refusals::{expect_takeover, start_with};
use super::{delete, expect_session_gone, open_at};
use crate::harness::{Replicas, wait_until_async};

async fn start(servers: &SentinelServers, upstream: &MockServer) -> Replicas {
    let url = servers.sentinel.url();
    let store = json!({ "kind": "sentinel", "primary": "main", "url": url });
    start_with(store, upstream).await
}

/// Waits until the replicas of weir use the new primary server and have written all that waited.
async fn wait_for_failover(servers: &SentinelServers, replicas: &Replicas) {
    servers.wait_until_replica_is_primary();
    replicas.wait_until_store_is_used().await;
    replicas.wait_until_known().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_over_a_failover_of_the_store() {
    let upstream = upstream().await;
    let mut servers = SentinelServers::start();
    let mut replicas = start(&servers, &upstream).await;
    let mut clients = open_clients(&replicas).await;
    servers.primary.kill();
    for _ in 0..3 {
        call_everywhere(&clients, &replicas).await;
        clients.push(use_new_session(&replicas).await);
    }
    wait_for_failover(&servers, &replicas).await;
    call_everywhere(&clients, &replicas).await;
    expect_takeover(&clients[1], &mut replicas, 0).await;
}

/// Returns how many sessions a server has, and how many ended ones it has marked.
fn sessions_and_ends(server: &RedisServer) -> Option<(usize, usize)> {
    let keys = server.command(&["KEYS", "weir:s:*"]).ok()?.texts();
    let mut ends = 0;
    for key in &keys {
        let mark = server.command(&["HEXISTS", key, "x"]).ok()?;
        ends += usize::from(mark == RespValue::Integer(1));
    }
    Some((keys.len() - ends, ends))
}

/// The primary server ends right after it confirmed sessions and the end of others, and the server
/// that takes its place heard of none of that.
// Proves F07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_and_ended_ones_stay_ended_after_a_failover_that_loses_writes() {
    let upstream = upstream().await;
    let mut servers = SentinelServers::start();
    let mut replicas = start(&servers, &upstream).await;
    let mut clients = open_clients(&replicas).await;
    let mut ended = Vec::new();
    for number in replicas.running_numbers() {
        ended.push(open_at(&replicas, number, Revision::NEWEST_LEGACY).await);
    }
    replicas.wait_until_store_is_used().await;
    call_everywhere(&ended, &replicas).await;

    servers.pause_replica();
    for _ in 0..3 {
        clients.push(use_new_session(&replicas).await);
    }
    for client in &ended {
        delete(client).await;
    }
    replicas.wait_until_store_is_used().await;
    servers.kill_primary();
    let expected = (clients.len() - 1, ended.len());
    wait_until_async(
        "all sessions and ends at the new primary server",
        async || (sessions_and_ends(&servers.replica)? == expected).then_some(()),
    )
    .await;
    wait_for_failover(&servers, &replicas).await;
    call_everywhere(&clients, &replicas).await;
    for client in &ended {
        expect_session_gone(client, &replicas).await;
    }
    // What was lost was written again: it outlives the replica that knew it.
    expect_takeover(&clients[1], &mut replicas, 0).await;
    call_everywhere(&clients, &replicas).await;
    for client in &ended {
        expect_session_gone(client, &replicas).await;
    }
}
