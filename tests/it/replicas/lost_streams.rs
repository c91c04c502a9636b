//! Streams of calls whose replica ends: their clients resume them at another replica, and get the
//! answer, or the error that it is lost.

use weir_replica_testkit::{RedisServer, RespValue};
use weir_testkit::mock_server::CallGate;
use weir_testkit::{ClientAnswer, HttpExchange, MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{COUNT, at, open_at, start};
use crate::harness::{
    CheckedClient, ForeignClient, Replicas, begin_gated_call, peers_are_enabled, wait_until_async,
    within_test_timeout,
};

const REVISIONS: [Revision; 3] = [
    Revision::NEWEST_LEGACY,
    Revision::V2025_06_18,
    Revision::V2025_03_26,
];

async fn upstream(gate: &CallGate) -> MockServer {
    MockServer::dual()
        .tool("gated", MockBehaviour::gated_after_progress(gate))
        .start()
        .await
}

/// Resumes a stream at a replica, and reads it to its end.
async fn resume(
    client: &CheckedClient,
    replicas: &Replicas,
    number: usize,
    id: &str,
) -> ClientAnswer {
    let raw = at(client, replicas, number).raw().clone();
    let raw = raw.with_header("last-event-id", id);
    let resumed = within_test_timeout("GET", raw.get_stream()).await.unwrap();
    assert_eq!(resumed.status, 200);
    let rest = within_test_timeout("the rest", resumed.finish()).await;
    rest.unwrap()
}

/// Counts the logs in the shared store that have this field.
fn logs_with(redis: &RedisServer, field: &str) -> usize {
    let logs = redis.keys().into_iter();
    let logs = logs.filter(|name| name.starts_with("weir:e:"));
    logs.filter(|name| redis.run(&["HGET", name, field]) != RespValue::Null)
        .count()
}

/// Waits until so many logs in the shared store have this field.
async fn wait_for_logs(replicas: &Replicas, field: &str, count: usize) {
    wait_until_async("the copies of logs", async || {
        (logs_with(replicas.redis(), field) == count).then_some(())
    })
    .await;
}

fn is_lost(answer: &ClientAnswer) -> bool {
    answer.messages.len() == 1
        && answer.last().to_string().contains("may have run")
        && (answer.result()["isError"] == true || answer.last().get("error").is_some())
}

// Proves R093 over replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_of_a_killed_replica_end_with_an_error_where_they_are_resumed() {
    let gate = CallGate::new();
    let upstream = upstream(&gate).await;
    let mut replicas = start(&upstream).await;
    let mut calls = Vec::new();
    for revision in REVISIONS {
        // One of them reaches the owner through another replica.
        for number in [0, 1] {
            let client = open_at(&replicas, 0, revision).await;
            let call = begin_gated_call(at(&client, &replicas, number).raw()).await;
            calls.push((client, call));
        }
    }
    // An event more than the progress, where streams begin with one.
    let newest =
        |call: &(CheckedClient, (HttpExchange, String))| call.0.revision.has_stream_polling();
    let with_first = calls.iter().filter(|call| newest(call)).count();
    wait_for_logs(&replicas, "lost", calls.len()).await;
    wait_for_logs(&replicas, "2", with_first).await;
    replicas.kill(0).await;
    let count = calls.len();
    for (number, (client, (stream, id))) in calls.into_iter().enumerate() {
        drop(stream);
        // The takeover and a second resumption have the same answer.
        for replica in [1, 2] {
            let answer = resume(&client, &replicas, replica, &id).await;
            assert!(is_lost(&answer), "call {number}: {:?}", answer.messages);
        }
    }
    assert_eq!(upstream.executions("gated"), count, "no call is made twice");
    let recovered = replicas.metric("weir_resumes_total", &[r#"result="recovered""#]);
    assert!(recovered >= count as f64, "{recovered}");
    gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_no_client_read_outlives_its_replica() {
    let gate = CallGate::new();
    let upstream = upstream(&gate).await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let (lost, id) = begin_gated_call(client.raw()).await;
    drop(lost);
    gate.open();
    wait_for_logs(&replicas, "end", 1).await;
    replicas.kill(0).await;
    let answer = resume(&client, &replicas, 2, &id).await;
    assert_eq!(answer.text(), r#"{"n":1}"#);
    // Another session cannot resume it.
    let other = open_at(&replicas, 1, Revision::NEWEST_LEGACY).await;
    let raw = other.raw().clone().with_header("last-event-id", &id);
    let stream = within_test_timeout("GET", raw.get_stream()).await.unwrap();
    assert_eq!(stream.status, 204, "no stream of this session");
    let unknown = replicas.metric("weir_resumes_total", &[r#"result="unknown""#]);
    assert!((unknown - 1.0).abs() < 0.1, "{unknown}");
}

/// The official client resumes by itself: its call ends with an error at once, and not at the time
/// limit of the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_the_typescript_sdk_ends_with_an_error_when_its_replica_is_killed() {
    if !peers_are_enabled() {
        return;
    }
    let gate = CallGate::new();
    let upstream = upstream(&gate).await;
    let mut replicas = start(&upstream).await;
    let url = replicas.url("/mcp");
    let running = tokio::task::spawn_blocking(move || {
        ForeignClient::TypeScript1.run(&url, &["call-progress", "gated", "{}"])
    });
    upstream
        .wait_until("the call runs", |upstream| {
            upstream.executions("gated") == 1
        })
        .await;
    wait_for_logs(&replicas, "2", 1).await;
    // Only the owner of the session has its upstream session.
    let owner = (0..COUNT).find(|number| {
        let calls = replicas
            .replica(*number)
            .metric("weir_upstream_in_flight", &[]);
        calls > 0.5
    });
    replicas.kill(owner.unwrap()).await;
    let called = within_test_timeout("the end of the call", running).await;
    let called = called.unwrap();
    let result = called.only_line("result")["result"].to_string();
    assert!(result.contains("may have run"), "{result}");
    assert_eq!(
        upstream.executions("gated"),
        1,
        "the call is not made twice"
    );
    gate.open();
}
