//! Clients of HTTP+SSE with their stream at one replica and their messages at others.

use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use weir_testkit::{HttpExchange, MockServer, RawClient};
use weir_wire::Revision;

use super::{COUNT, start};
use crate::harness::{Replicas, within_test_timeout};

/// A client whose messages go to all replicas in turn.
struct ScatteredSseClient<'a> {
    replicas: &'a Replicas,
    stream: HttpExchange,
    /// The path for messages, as the stream named it.
    path: String,
    sent: usize,
}

impl<'a> ScatteredSseClient<'a> {
    /// Opens the stream at one replica.
    async fn open(replicas: &'a Replicas, number: usize) -> Self {
        let raw = RawClient::new(&replicas.replica(number).url("/mcp/sse"));
        let mut accept = HeaderMap::new();
        accept.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        let opened = within_test_timeout("the stream", raw.send(Method::GET, accept, "")).await;
        let mut stream = opened.unwrap();
        assert_eq!(stream.status, 200);
        let first = within_test_timeout("the endpoint", stream.next_event()).await;
        let first = first.unwrap().unwrap();
        assert_eq!(first.event.as_deref(), Some("endpoint"));
        Self {
            replicas,
            stream,
            path: first.data,
            sent: 0,
        }
    }

    /// Posts a message to the next replica; returns the status.
    async fn post(&mut self, message: &Value) -> u16 {
        let number = self.sent % COUNT;
        self.sent += 1;
        let raw = RawClient::new(&self.replicas.replica(number).url(&self.path));
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let sent = raw.send(Method::POST, headers, message.to_string()).await;
        let answer = within_test_timeout("the post", sent.unwrap().finish()).await;
        answer.unwrap().status.as_u16()
    }

    async fn ask(&mut self, id: usize, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        assert_eq!(self.post(&message).await, 202, "{message}");
        loop {
            let event = within_test_timeout("an answer", self.stream.next_event()).await;
            let event = event.unwrap().unwrap();
            if !event.data.is_empty() {
                let answer: Value = serde_json::from_str(&event.data).unwrap();
                assert_eq!(answer["id"], id, "{answer}");
                return answer;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_posted_to_any_replica_are_answered_on_the_one_stream() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(2);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    for streaming in 0..COUNT {
        let mut client = ScatteredSseClient::open(&replicas, streaming).await;
        let about = json!({ "name": "old", "version": "1" });
        let hello =
            json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": about });
        let greeted = client.ask(1, "initialize", hello).await;
        assert_eq!(greeted["result"]["protocolVersion"], "2024-11-05");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&ready).await, 202);
        for id in 2..11 {
            let called = json!({ "name": "tool_0000", "arguments": { "n": id } });
            let answer = client.ask(id, "tools/call", called).await;
            let text = &answer["result"]["content"][0]["text"];
            assert_eq!(text, &format!(r#"{{"n":{id}}}"#), "{answer}");
        }
        let listed = client.ask(11, "tools/list", json!({})).await;
        assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(2));
    }
    assert_eq!(upstream.executions("tool_0000"), 9 * COUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_a_stream_of_a_killed_replica_are_refused() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let mut replicas = start(&upstream).await;
    let path = ScatteredSseClient::open(&replicas, 0).await.path;
    replicas.kill(0).await;
    for replica in replicas.running() {
        let raw = RawClient::new(&replica.url(&path));
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
        let headers = [("content-type", "application/json")];
        let answer = raw.post_raw(&headers, ping).await.unwrap();
        assert_eq!(answer.status, 404);
    }
}
