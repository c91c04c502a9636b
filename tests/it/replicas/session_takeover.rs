//! Sessions outlive the replica that owns them.

use std::time::{Duration, Instant};

use serde_json::json;
use weir_replica_testkit::{RedisServer, free_port};
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::change_streams::{expect_list_change, expect_update};
use super::{COUNT, at, call, config, delete, expect_session_gone, open_at, start, use_session};
use crate::harness::{CheckedStream, Replicas, wait_until_async, within_test_timeout};

async fn upstream(gate: &CallGate) -> MockServer {
    MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .with_library()
        .tool("gated", MockBehaviour::gated(gate))
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_goes_on_after_its_owner_is_killed_and_no_call_runs_twice() {
    let gate = CallGate::new();
    let upstream = upstream(&gate).await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let client = client.at_url(&replicas.url("/mcp"));
    use_session(&client, 3).await;
    // One running call comes straight to the owner, the other through another replica.
    let running = [0, 1].map(|number| {
        let raw = at(&client, &replicas, number).raw().clone();
        tokio::spawn(async move { raw.call("gated", json!({})).await })
    });
    upstream
        .wait_until("both calls run", |upstream| {
            upstream.executions("gated") == 2
        })
        .await;
    replicas.kill(0).await;
    for call in running {
        let ended = within_test_timeout("the end of a running call", call).await;
        // A broken connection, or an error: the outcome of the call is unknown.
        if let Ok(answer) = ended.unwrap() {
            let is_error = answer.status != 200
                || answer.last().get("error").is_some()
                || answer.result()["isError"] == true;
            assert!(is_error, "{} {:?}", answer.status, answer.body);
        }
    }
    gate.open();
    use_session(&client, 6).await;
    assert_eq!(upstream.executions("gated"), 2, "no call is made twice");
    delete(&client).await;
    expect_session_gone(&client, &replicas).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_killed_replica_go_on_at_once_after_a_start_at_its_address() {
    let upstream = upstream(&CallGate::new()).await;
    let config = config(&upstream);
    let mut first = config.clone();
    first["cluster"]["listen"] = json!(format!("127.0.0.1:{}", free_port()));
    let configs = vec![first, config];
    let mut replicas = Replicas::with_configs(configs, RedisServer::start()).await;
    let one = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let two = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    replicas.wait_until_store_is_used().await;
    replicas.kill(0).await;
    let again = replicas.start_again(0);
    call(&at(&one, &replicas, 1), 0).await;
    call(&at(&two, &replicas, again), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_has_one_owner_again_after_a_takeover() {
    let upstream = upstream(&CallGate::new()).await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    replicas.kill(0).await;
    // Both replicas that are left get requests at the same time.
    let [one, other] = [1, 2].map(|number| at(&client, &replicas, number));
    for round in 0..10 {
        tokio::join!(call(&one, round), call(&other, round));
    }
    let calls = upstream.requests_of("tools/call");
    let sessions: std::collections::BTreeSet<_> = calls.iter().map(|call| call.session()).collect();
    assert_eq!((calls.len(), sessions.len()), (20, 1), "one owner calls");
    replicas.kill(1).await;
    for round in 0..3 {
        call(&other, round).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_reopened_after_the_owner_is_killed_hears_list_changes() {
    let upstream = upstream(&CallGate::new()).await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let mut stream = at(&client, &replicas, 1).open_change_stream().await;
    let heard = expect_list_change(&upstream, &mut stream);
    within_test_timeout("a change", heard).await;
    replicas.kill(0).await;
    within_test_timeout("the end of the stream", read_to_end(stream)).await;
    let mut stream = at(&client, &replicas, 2).open_change_stream().await;
    let heard = expect_list_change(&upstream, &mut stream);
    within_test_timeout("a change after the takeover", heard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_to_resources_outlive_the_owner() {
    let upstream = upstream(&CallGate::new()).await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let mut stream = at(&client, &replicas, 1).open_change_stream().await;
    let subscribed = client
        .ask("resources/subscribe", json!({ "uri": "memo:1" }))
        .await;
    assert_eq!(subscribed.result(), &json!({}));
    let heard = expect_update(&upstream, &mut stream, "memo:1");
    within_test_timeout("an update", heard).await;
    // A subscription is written behind its answer.
    replicas.wait_until_store_is_used().await;
    replicas.kill(0).await;
    within_test_timeout("the end of the stream", read_to_end(stream)).await;
    let mut stream = at(&client, &replicas, 2).open_change_stream().await;
    let heard = expect_update(&upstream, &mut stream, "memo:1");
    within_test_timeout("an update after the takeover", heard).await;
}

/// The time that an unused session lives, and the longer one for which its owner is paused.
const IDLE_TIME: &str = "15s";
const PAUSE: Duration = Duration::from_secs(18);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_moved_in_a_long_pause_of_its_owner_is_not_unknown_there() {
    let upstream = upstream(&CallGate::new()).await;
    let mut config = config(&upstream);
    config["limits"]["session_idle"] = json!(IDLE_TIME);
    let replicas = Replicas::start(COUNT, config).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    replicas.wait_until_store_is_used().await;
    let paused = &replicas.replica(0).process;
    paused.signal("STOP");
    let begun = Instant::now();
    let [there, elsewhere] = [0, 1].map(|number| at(&client, &replicas, number));
    wait_until_async("a long pause in which the session is used", async || {
        let pinged = elsewhere.raw().ask("ping", json!({})).await;
        let is_served = pinged.is_ok_and(|pinged| pinged.status == 200);
        (is_served && begun.elapsed() > PAUSE).then_some(())
    })
    .await;
    // The replica goes on, and cannot ask the store.
    replicas.redis().pause();
    paused.signal("CONT");
    for _ in 0..40 {
        let pinged = there.raw().ask("ping", json!({})).await.unwrap();
        let may_come_back = pinged.status == 503 && pinged.header("retry-after").is_some();
        assert!(may_come_back, "{} {:?}", pinged.status, pinged.body);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    replicas.redis().resume();
    wait_until_async("the session", async || {
        let pinged = there.raw().ask("ping", json!({})).await.unwrap();
        assert_ne!(pinged.status, 404, "{:?}", pinged.body);
        (pinged.status == 200).then_some(())
    })
    .await;
    call(&there, 1).await;
    call(&elsewhere, 2).await;
}

/// Reads a stream up to its end, which may be a broken connection.
async fn read_to_end(mut stream: CheckedStream) {
    while let Ok(Some(_)) = stream.exchange.next_message().await {}
}
