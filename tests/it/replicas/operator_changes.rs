//! Operators' changes are in force on every replica, and survive the end of any of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::COUNT;
use crate::admin::{OperatorClient, with_two};
use crate::harness::{CheckedClient, Replicas, Weir, wait_until_async};

/// The time within which a change is in force on every replica.
pub(super) const IN_FORCE: Duration = Duration::from_secs(5);
const TOOL: &str = "one__tool_0000";

async fn start(upstream: &MockServer) -> (Replicas, [String; 2]) {
    let (config, keys) = with_two(&[("one", upstream)]);
    let replicas = Replicas::start(COUNT, config).await;
    for weir in replicas.running() {
        let client = client(weir, &keys[1]).await;
        wait_until_async("the list", async || {
            let names = client.list_tool_names().await;
            names.contains(&TOOL.to_owned()).then_some(())
        })
        .await;
    }
    (replicas, keys)
}

async fn client(weir: &Weir, key: &str) -> CheckedClient {
    let header = ("authorization", key);
    CheckedClient::open_with_header(&weir.url("/mcp"), Revision::MODERN, header).await
}

/// Returns the principal of a client that has sent requests to this replica.
async fn principal(weir: &Weir, subject: &str) -> Value {
    wait_until_async("the principal", async || {
        let clients = OperatorClient::of(weir).get_json("/admin/clients").await;
        let clients = clients["clients"].as_array().unwrap().clone();
        let found = clients
            .into_iter()
            .find(|one| one["principal"]["subject"] == subject);
        found.map(|one| one["principal"].clone())
    })
    .await
}

/// Waits until a client gets this status at a replica; returns the time that it took.
async fn wait_for_status(client: &CheckedClient, weir: &Weir, status: u16) -> Duration {
    let begun = Instant::now();
    let client = client.at_url(&weir.url("/mcp"));
    wait_until_async(&format!("status {status}"), async || {
        let answer = client.raw().ask("tools/list", json!({})).await.unwrap();
        (answer.status == status).then_some(())
    })
    .await;
    begun.elapsed()
}

async fn expect_in_time(client: &CheckedClient, replicas: &Replicas, status: u16) {
    for weir in replicas.running() {
        let taken = wait_for_status(client, weir, status).await;
        assert!(taken < IN_FORCE, "{taken:?}");
    }
}

/// Asserts that every replica lists so many changes in force.
async fn expect_changes(replicas: &Replicas, count: usize) {
    for weir in replicas.running() {
        let config = OperatorClient::of(weir).get_json("/admin/config").await;
        assert_eq!(
            config["changes"].as_array().unwrap().len(),
            count,
            "{config}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_principal_gets_403_on_every_replica() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (mut replicas, [ada, bob]) = start(&upstream).await;
    let blocked = client(replicas.replica(0), &ada).await;
    let other = client(replicas.replica(0), &bob).await;
    // A stream at another replica than the one that is asked to block.
    let stream = blocked
        .at_url(&replicas.replica(1).url("/mcp"))
        .open_change_stream()
        .await;
    wait_for_status(&blocked, replicas.replica(0), 200).await;
    let whom = principal(replicas.replica(1), "ada").await;
    let mut wish = whom.clone();
    wish["reason"] = json!("floods");
    let ops = OperatorClient::of(replicas.replica(0));
    let done = ops.change("/admin/principals/block", wish).await;
    assert_eq!(done["replicas"], "notified", "{done}");
    expect_in_time(&blocked, &replicas, 403).await;
    stream.read_rest().await;
    expect_in_time(&other, &replicas, 200).await;
    expect_changes(&replicas, 1).await;
    // A replica that starts later knows of it from the first request on.
    let late = replicas.start_another();
    let refused = blocked.at_url(&replicas.replica(late).url("/mcp"));
    let refused = refused.raw().ask("tools/list", json!({})).await.unwrap();
    assert_eq!(refused.status, 403);
    // The block outlives the store and the replica that was asked.
    replicas.redis_mut().kill();
    replicas.wait_until_store_is_missed().await;
    expect_in_time(&blocked, &replicas, 403).await;
    replicas.kill(0).await;
    replicas.redis_mut().restart_empty();
    replicas.wait_until_known().await;
    let last = replicas.start_another();
    wait_for_status(&blocked, replicas.replica(last), 403).await;
    expect_in_time(&blocked, &replicas, 403).await;
    // Another replica may be asked to unblock.
    let ops = OperatorClient::of(replicas.replica(1));
    ops.change("/admin/principals/unblock", whom).await;
    expect_in_time(&blocked, &replicas, 200).await;
    expect_changes(&replicas, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_without_the_store_is_in_force_here_and_reaches_the_others_later() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (mut replicas, [ada, _]) = start(&upstream).await;
    let blocked = client(replicas.replica(0), &ada).await;
    wait_for_status(&blocked, replicas.replica(0), 200).await;
    let mut whom = principal(replicas.replica(0), "ada").await;
    let ops = OperatorClient::of(replicas.replica(0));
    ops.change("/admin/principals/block", whom.clone()).await;
    expect_in_time(&blocked, &replicas, 403).await;
    replicas.redis_mut().kill();
    let begun = Instant::now();
    let done = ops.change("/admin/principals/unblock", whom.clone()).await;
    assert!(begun.elapsed() < IN_FORCE, "{:?}", begun.elapsed());
    assert_eq!(done["replicas"], "pending", "{done}");
    wait_for_status(&blocked, replicas.replica(0), 200).await;
    wait_for_status(&blocked, replicas.replica(1), 403).await;
    replicas.redis_mut().restart();
    expect_in_time(&blocked, &replicas, 200).await;
    whom["ttl"] = json!("3s");
    ops.change("/admin/principals/block", whom).await;
    wait_until_async("the end of the block", async || {
        let config = ops.get_json("/admin/config").await;
        config["changes"]
            .as_array()
            .unwrap()
            .is_empty()
            .then_some(())
    })
    .await;
    // It ends everywhere.
    expect_in_time(&blocked, &replicas, 200).await;
    expect_changes(&replicas, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_upstream_is_out_of_service_on_every_replica() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (replicas, [ada, _]) = start(&upstream).await;
    let client = client(replicas.replica(0), &ada).await;
    let lists_tool = async |wanted: bool| {
        for weir in replicas.running() {
            let client = client.at_url(&weir.url("/mcp"));
            wait_until_async("the list", async || {
                let names = client.list_tool_names().await;
                (names.contains(&TOOL.to_owned()) == wanted).then_some(())
            })
            .await;
        }
    };
    let ops = OperatorClient::of(replicas.replica(0));
    ops.change("/admin/upstreams/one/drain", json!({})).await;
    lists_tool(false).await;
    let seen = OperatorClient::of(replicas.replica(2));
    let config = seen.get_json("/admin/config").await;
    assert_eq!(config["changes"][0]["what"], "drain", "{config}");
    ops.change("/admin/upstreams/one/disable", json!({})).await;
    wait_until_async("the change", async || {
        let config = seen.get_json("/admin/config").await;
        (config["changes"][0]["what"] == "disable").then_some(())
    })
    .await;
    seen.change("/admin/upstreams/one/enable", json!({})).await;
    lists_tool(true).await;
    expect_changes(&replicas, 0).await;
}
