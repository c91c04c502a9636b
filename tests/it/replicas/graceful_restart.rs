//! A graceful restart of a replica by SIGUSR2: the new process goes on under the name of the old
//! one.

use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::parked_calls::{client, upstream};
use super::store_outages::{call_everywhere, open_clients};
use super::{
    COUNT, at, call, delete, expect_session_gone, open_at, start, store_outages, use_session,
};
use crate::handover::{is_gone, successors};
use crate::harness::{retry_params, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_stay_with_a_replica_that_restarts_gracefully() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("tool_0000", MockBehaviour::echo())
        .start()
        .await;
    let replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    call(&client, 0).await;
    let restarted = replicas.replica(0);
    restarted.process.signal("USR2");
    wait_until("the successor", || successors(restarted).first().copied());
    // During the drain of the old process, and afterwards.
    for number in 0..COUNT {
        use_session(&at(&client, &replicas, number), 2).await;
    }
    let before = restarted.process.id();
    wait_until("the end of the old process", || {
        is_gone(before).then_some(())
    });
    for number in 0..COUNT {
        use_session(&at(&client, &replicas, number), 2).await;
    }
    assert_eq!(
        replicas.metric("weir_store_lost_total", &[]),
        0.0,
        "no replica lost a session to another"
    );
    delete(&client).await;
    expect_session_gone(&client, &replicas).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_calls_of_a_replica_that_restarts_gracefully_go_on_from_any_replica() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = client(&replicas).await;
    let restarted = at(&client, &replicas, 0);
    let mut asked = Vec::new();
    for _ in 0..COUNT {
        asked.push(restarted.call("ask", json!({})).await);
    }
    replicas.replica(0).process.signal("USR2");
    wait_until("the successor", || {
        successors(replicas.replica(0)).first().copied()
    });
    for (number, asked) in asked.iter().enumerate() {
        let params = retry_params(asked.result(), &json!({}));
        let client = at(&client, &replicas, number);
        let done = client.ask("tools/call", params).await;
        assert_eq!(done.text(), "{}", "{}", done.last());
    }
    assert_eq!(upstream.executions("ask"), COUNT);
}

/// The new process has no answer of the store yet, and goes on with what the old one knew of the
/// other replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_begins_while_the_store_is_away_serves_sessions_of_other_replicas() {
    let upstream = store_outages::upstream().await;
    let mut replicas = start(&upstream).await;
    let clients = open_clients(&replicas).await;
    call_everywhere(&clients, &replicas).await;
    replicas.redis_mut().kill();
    let restarted = replicas.replica(0);
    let before = restarted.process.id();
    restarted.process.signal("USR2");
    wait_until("the successor", || successors(restarted).first().copied());
    call_everywhere(&clients, &replicas).await;
    wait_until("the end of the old process", || {
        is_gone(before).then_some(())
    });
    call_everywhere(&clients, &replicas).await;
    replicas.redis_mut().restart();
    replicas.wait_until_store_is_used().await;
    call_everywhere(&clients, &replicas).await;
}
