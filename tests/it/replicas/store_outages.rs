//! Clients are served while the shared store is down, does not answer, or lost its data.

use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::{
    COUNT, at, call, delete, expect_session_gone, open_at, start, start_with_default_store_timeout,
    use_session,
};
use crate::harness::{CheckedClient, Replicas, wait_until_async};

/// The longest that any request may take while the store does not answer. Far above the limit of
/// one command: the bound is against requests that hang.
const REQUEST_BOUND: Duration = Duration::from_secs(20);

pub(super) async fn upstream() -> MockServer {
    MockServer::dual().tools(1).start().await
}

/// Opens a session at each replica, and a modern client at the balancer.
pub(super) async fn open_clients(replicas: &Replicas) -> Vec<CheckedClient> {
    let mut clients = vec![CheckedClient::open(&replicas.url("/mcp"), Revision::MODERN).await];
    for number in 0..COUNT {
        clients.push(open_at(replicas, number, Revision::NEWEST_LEGACY).await);
    }
    clients
}

/// Makes a call of each client at each replica; each must succeed within the bound.
pub(super) async fn call_everywhere(clients: &[CheckedClient], replicas: &Replicas) {
    for client in clients {
        for replica in replicas.running() {
            let client = client.at_url(&replica.url("/mcp"));
            in_time(call(&client, 1)).await;
        }
    }
}

pub(super) async fn in_time<T>(request: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = request.await;
    let taken = begun.elapsed();
    assert!(taken < REQUEST_BOUND, "a request took {taken:?}");
    done
}

/// Opens a new session and uses it at every replica.
pub(super) async fn use_new_session(replicas: &Replicas) -> CheckedClient {
    let url = replicas.url("/mcp");
    let client = in_time(Box::pin(CheckedClient::open(&url, Revision::NEWEST_LEGACY))).await;
    call_everywhere(std::slice::from_ref(&client), replicas).await;
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_sessions_go_on_without_the_store_and_after_it_comes_back_empty() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let mut clients = open_clients(&replicas).await;
    call_everywhere(&clients, &replicas).await;
    let keys = replicas.redis().keys().len();
    replicas.redis_mut().kill();
    for _ in 0..3 {
        call_everywhere(&clients, &replicas).await;
        clients.push(use_new_session(&replicas).await);
    }
    replicas.redis_mut().restart_empty();
    call_everywhere(&clients, &replicas).await;
    clients.push(use_new_session(&replicas).await);
    replicas.wait_until_store_is_used().await;
    wait_until_async("the sessions in the store", async || {
        (replicas.redis().keys().len() >= keys).then_some(())
    })
    .await;
    replicas.wait_until_known().await;
    call_everywhere(&clients, &replicas).await;
    for client in &clients[1..] {
        delete(&at(client, &replicas, 0)).await;
        expect_session_gone(client, &replicas).await;
    }
}

/// The sessions are in the store again, so another replica can take them over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_outlive_their_owner_after_the_store_lost_its_data() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let client = client.at_url(&replicas.url("/mcp"));
    let keys = replicas.redis().keys().len();
    replicas.redis_mut().restart_empty();
    replicas.wait_until_store_is_used().await;
    wait_until_async("the session in the store", async || {
        (replicas.redis().keys().len() >= keys).then_some(())
    })
    .await;
    replicas.wait_until_known().await;
    replicas.kill(0).await;
    // Shortly after its store lost data a replica takes no session from another: it asks its clients
    // to come back.
    wait_until_async("the take-over", async || {
        let answer = client.call("tool_0000", json!({})).await;
        let is_over = answer.status == 200;
        assert!(is_over || answer.status == 503, "{}", answer.status);
        is_over.then_some(())
    })
    .await;
    use_session(&client, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_outlive_their_owner_after_a_restart_of_the_store_with_its_data() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let client = client.at_url(&replicas.url("/mcp"));
    replicas.redis_mut().restart();
    replicas.wait_until_store_is_used().await;
    replicas.wait_until_known().await;
    replicas.kill(0).await;
    use_session(&client, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_or_hangs_while_the_store_does_not_answer() {
    let upstream = upstream().await;
    let replicas = start_with_default_store_timeout(&upstream).await;
    let mut clients = open_clients(&replicas).await;
    replicas.redis().pause();
    // Longer than several commands wait for the store, and than a replica may be silent.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        call_everywhere(&clients, &replicas).await;
        clients.push(use_new_session(&replicas).await);
    }
    let ended = clients.pop().unwrap();
    in_time(delete(&ended)).await;
    replicas.redis().resume();
    replicas.wait_until_store_is_used().await;
    replicas.wait_until_known().await;
    call_everywhere(&clients, &replicas).await;
    expect_session_gone(&ended, &replicas).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_flushed_by_an_operator_are_written_again() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let clients = open_clients(&replicas).await;
    let keys = replicas.redis().keys().len();
    replicas.redis().flush();
    call_everywhere(&clients, &replicas).await;
    wait_until_async("the sessions in the store", async || {
        (replicas.redis().keys().len() >= keys).then_some(())
    })
    .await;
    replicas.wait_until_store_is_used().await;
    replicas.wait_until_known().await;
    replicas.kill(1).await;
    call_everywhere(&clients, &replicas).await;
    let called = clients[2].at_url(&replicas.url("/mcp"));
    assert_eq!(called.ask("ping", json!({})).await.result(), &json!({}));
}
