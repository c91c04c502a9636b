//! Calls of modern clients that wait for input at one replica, and go on by a request to another.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer, RawSocket};
use weir_wire::{Revision, meta};

use super::{COUNT, at, replica_pairs, start};
use crate::harness::{CheckedClient, Replicas, retry_params, wait_until_async};

/// A server with a tool `ask` that asks its client once.
pub(super) async fn upstream() -> MockServer {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "message": "Your name?", "requestedSchema": schema });
    MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("ask", MockBehaviour::ask("elicitation/create", form))
        .start()
        .await
}

pub(super) async fn client(replicas: &Replicas) -> CheckedClient {
    let capabilities = json!({ "elicitation": {} });
    CheckedClient::with_capabilities(&replicas.url("/mcp"), Revision::MODERN, capabilities).await
}

/// Parks a call at each replica for each replica, at which it goes on. Each runs once.
pub(super) async fn park_and_continue_everywhere(upstream: &MockServer, replicas: &Replicas) {
    let client = client(replicas).await;
    for [calling, retrying] in replica_pairs() {
        let arguments = json!({ "n": [calling, retrying] });
        let asked = at(&client, replicas, calling)
            .call("ask", arguments.clone())
            .await;
        let done = at(&client, replicas, retrying)
            .ask("tools/call", retry_params(asked.result(), &arguments))
            .await;
        assert_eq!(done.text(), arguments.to_string(), "{}", done.last());
    }
    assert_eq!(upstream.executions("ask"), COUNT * COUNT);
}

// Proves R284.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_call_goes_on_from_any_replica_and_runs_once() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    park_and_continue_everywhere(&upstream, &replicas).await;
    let counts = upstream.counts("ask");
    assert_eq!((counts.cancelled, counts.abandoned), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_parked_at_a_killed_replica_is_reported_lost_and_does_not_run_again() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let client = client(&replicas).await;
    let asked = at(&client, &replicas, 0).call("ask", json!({})).await;
    replicas.kill(0).await;
    for number in [1, 2] {
        let lost = at(&client, &replicas, number)
            .ask("tools/call", retry_params(asked.result(), &json!({})))
            .await;
        let error = &lost.result()["_meta"][meta::WEIR_ERROR];
        assert_eq!(error["reason"], "result_unknown", "{}", lost.last());
    }
    assert_eq!(upstream.executions("ask"), 1);
}

/// Such a request becomes a call after the drain has begun, when no other call runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_was_being_read_when_its_replica_stopped_goes_on_from_another() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = client(&replicas).await;
    let stopped = replicas.replica(0);
    let params = json!({ "name": "ask", "arguments": {} });
    let (headers, message) = client.raw().envelope("tools/call", params);
    let mut head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", stopped.address());
    for (name, value) in &headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    let body = message.to_string();
    head += &format!(
        "connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut request = RawSocket::connect(&stopped.url("/mcp")).await.unwrap();
    let (first, rest) = body.split_at(body.len() / 2);
    request.write((head + first).as_bytes()).await.unwrap();
    wait_until_async("the request", async || {
        let active = stopped.metric("http_server_active_requests", &[]);
        (active > 0.5).then_some(())
    })
    .await;
    stopped.process.signal("TERM");
    wait_until_async("the drain", async || {
        let refused = std::net::TcpStream::connect(stopped.address()).is_err();
        refused.then_some(())
    })
    .await;
    request.write(rest.as_bytes()).await.unwrap();
    let answer = request.read_to_end().await.unwrap();
    let (begin, end) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
    let asked: Value = serde_json::from_str(&answer[begin..=end]).unwrap();
    let done = at(&client, &replicas, 1)
        .ask("tools/call", retry_params(&asked["result"], &json!({})))
        .await;
    assert_eq!(done.text(), "{}", "{}", done.last());
    assert_eq!(upstream.executions("ask"), 1);
}
