//! Requests that are traced, and that another replica than the one that got them answers.

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::Revision;

use super::{COUNT, at, call, config, open_at, parked_calls, replica_pairs};
use crate::harness::{CheckedClient, Replicas, peers_are_enabled, wait_until};
use crate::telemetry::{RawCollector, TypedCollector, attribute};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Starts replicas that trace every request.
async fn start(upstream: &MockServer, collector: &str) -> Replicas {
    let mut config = config(upstream);
    config["telemetry"] = json!({
        "traces": { "sample": 1.0 },
        "otlp": { "endpoint": collector, "protocol": "http", "interval": "300ms" },
    });
    Replicas::start(COUNT, config).await
}

/// Sends a batch of a ping and a call.
async fn send_batch(client: &CheckedClient) -> ClientAnswer {
    let (headers, _) = client.raw().envelope("ping", Value::Null);
    let call = json!({ "name": "tool_0000", "arguments": { "n": 1 } });
    let body = json!([
        { "jsonrpc": "2.0", "id": 71, "method": "ping" },
        { "jsonrpc": "2.0", "id": 72, "method": "tools/call", "params": call },
    ]);
    let sent = client
        .raw()
        .send(http::Method::POST, headers, body.to_string());
    sent.await.unwrap().finish().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traced_requests_of_a_session_are_answered_at_every_replica() {
    let upstream = legacy_upstream().await;
    let collector = RawCollector::start();
    let replicas = start(&upstream, collector.url()).await;
    for revision in [Revision::V2025_03_26, Revision::NEWEST_LEGACY] {
        for [owner, asked] in replica_pairs() {
            let client = open_at(&replicas, owner, revision).await;
            let client = at(&client, &replicas, asked);
            call(&client, asked).await;
            assert!(!client.list_tool_names().await.is_empty());
            assert_eq!(client.ask("ping", json!({})).await.result(), &json!({}));
            if revision.has_batches() {
                let answer = send_batch(&client).await;
                assert_eq!((answer.status.as_u16(), answer.messages.len()), (200, 2));
            }
        }
    }
    wait_until("the spans", || {
        collector.got().contains("tools/call").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traced_parked_call_goes_on_from_any_replica_and_runs_once() {
    let upstream = parked_calls::upstream().await;
    let collector = RawCollector::start();
    let replicas = start(&upstream, collector.url()).await;
    parked_calls::park_and_continue_everywhere(&upstream, &replicas).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traced_request_about_a_task_is_answered_at_every_replica() {
    let upstream = MockServer::modern()
        .with_tasks_of(Revision::MODERN)
        .tools(1)
        .start()
        .await;
    let collector = RawCollector::start();
    let replicas = start(&upstream, collector.url()).await;
    for [calling, asking] in replica_pairs() {
        let client = open_at(&replicas, calling, Revision::NEWEST_LEGACY).await;
        let params =
            json!({ "name": "tool_0000", "arguments": { "n": 1 }, "task": { "ttl": 60_000 } });
        let answer = client.ask("tools/call", params).await;
        let about = json!({ "taskId": answer.result()["task"]["taskId"] });
        let client = at(&client, &replicas, asking);
        let result = client.ask("tasks/result", about.clone()).await;
        assert_eq!(result.text(), r#"{"n":1}"#, "{}", result.last());
        let state = client.ask("tasks/get", about).await;
        assert_eq!(state.result()["status"], "completed", "{}", state.last());
    }
}

async fn legacy_upstream() -> MockServer {
    let server = MockServer::legacy(Revision::NEWEST_LEGACY);
    server.tools(1).start().await
}

/// Returns an id in the JSON form of the official types.
fn base64(hex: &str) -> String {
    data_encoding::BASE64.encode(&data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap())
}

/// The spans of calls of tools, of weir's clients alone, that are children of `parent`.
fn server_spans_below(collector: &TypedCollector, parent: &Value) -> Vec<Value> {
    let spans = collector.spans().into_iter();
    let is_own = |span: &Value| {
        span["kind"] == "SPAN_KIND_SERVER"
            && span["traceId"] == base64(TRACE)
            && span["parentSpanId"] == *parent
    };
    spans.filter(is_own).collect()
}

/// Calls the tool with a trace of the client's, in the head or in `_meta`.
async fn call_in_trace(client: &CheckedClient, in_meta: bool) -> ClientAnswer {
    let parent = format!("00-{TRACE}-{SPAN}-00");
    let plain = json!({ "name": "tool_0000", "arguments": {} });
    if in_meta {
        let mut params = plain;
        params["_meta"] = json!({ "traceparent": parent });
        return client.ask("tools/call", params).await;
    }
    let client = client.clone().with_header("traceparent", &parent);
    client.ask("tools/call", plain).await
}

// Proves R139.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn span_of_the_owner_is_a_child_of_the_span_of_the_replica_that_forwards() {
    if !peers_are_enabled() {
        return;
    }
    let upstream = legacy_upstream().await;
    for in_meta in [true, false] {
        let collector = TypedCollector::start(&[]);
        let replicas = start(&upstream, collector.url("http")).await;
        let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
        let answer = call_in_trace(&at(&client, &replicas, 1), in_meta).await;
        assert!(answer.result().is_object());
        let (first, owners) = wait_until("both spans", || {
            let first = server_spans_below(&collector, &json!(base64(SPAN)));
            let owners = server_spans_below(&collector, &first.first()?["spanId"]);
            (!owners.is_empty()).then_some((first, owners))
        });
        assert_eq!(
            (first.len(), owners.len()),
            (1, 1),
            "{first:#?} {owners:#?}"
        );
        for (name, expected) in [
            ("weir.outcome", "ok"),
            ("http.response.status_code", "200"),
            ("mcp.method.name", "tools/call"),
        ] {
            for span in [&first[0], &owners[0]] {
                assert_eq!(attribute(span, name).as_deref(), Some(expected), "{span}");
            }
        }
        let request = |span: &Value| attribute(span, "weir.request.id");
        assert_eq!(request(&first[0]), request(&owners[0]));
        // The call to the server is below the span of the replica that made it.
        let calls = wait_until("the span of the call", || {
            let spans = collector.spans().into_iter();
            let is_own = |span: &Value| {
                span["kind"] == "SPAN_KIND_CLIENT" && span["traceId"] == base64(TRACE)
            };
            let calls: Vec<Value> = spans.filter(is_own).collect();
            (!calls.is_empty()).then_some(calls)
        });
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0]["parentSpanId"], owners[0]["spanId"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_tried_again_after_its_owner_ended_has_one_span() {
    if !peers_are_enabled() {
        return;
    }
    let upstream = legacy_upstream().await;
    let collector = TypedCollector::start(&[]);
    let mut replicas = start(&upstream, collector.url("http")).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    replicas.kill(0).await;
    let client = at(&client, &replicas, 1);
    let answer = call_in_trace(&client, true).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let spans = wait_until("the span", || {
        let spans = server_spans_below(&collector, &json!(base64(SPAN)));
        (!spans.is_empty()).then_some(spans)
    });
    assert_eq!(spans.len(), 1, "{spans:#?}");
    let outcome = attribute(&spans[0], "weir.outcome");
    assert_eq!(outcome.as_deref(), Some("ok"), "{}", spans[0]);
}
