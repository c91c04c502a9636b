//! Connections of HTTP+SSE clients: their sessions, the limit of pending answers, and drains.

use std::future::ready;
use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use weir_core::upstream::ClientSessionChange;
use weir_testkit::{HttpExchange, RawClient, RawSocket};
use weir_wire::error_code;

use crate::drain::LONG_DRAIN;
use crate::test_front::{SHORT_IDLE, TestFront, in_time, settings};

/// The requests of one client that are answered at the same time.
const MAX_REQUESTS: u64 = 64;

/// A client with its stream and its path for messages.
struct SseClient {
    client: RawClient,
    address: SocketAddr,
    stream: HttpExchange,
    path: String,
}

impl SseClient {
    /// Opens a stream, and a session.
    async fn open(world: &TestFront) -> Self {
        let events = HeaderValue::from_static("text/event-stream");
        let accept: HeaderMap = [(header::ACCEPT, events)].into_iter().collect();
        let client = world.client();
        let opening = client.clone().with_url(&format!("{}/sse", world.url()));
        let mut stream = opening.send(Method::GET, accept, "").await.unwrap();
        let first = in_time("the first event", stream.next_event()).await;
        let path = first.unwrap().unwrap().data;
        let mut client = Self {
            client,
            address: world.front.local_addr(),
            stream,
            path,
        };
        client.initialize().await;
        client
    }

    async fn initialize(&mut self) {
        let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let answer = self.ask(0, "initialize", &hello).await;
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&ready).await, 202);
    }

    /// Posts a message; returns the status.
    async fn post(&self, message: &Value) -> u16 {
        let url = format!("http://{}{}", self.address, self.path);
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::CONTENT_TYPE, json)].into_iter().collect();
        let client = self.client.clone().with_url(&url);
        let sent = client.send(Method::POST, headers, message.to_string());
        in_time("the response", sent).await.unwrap().status.as_u16()
    }

    /// The next message; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        let next = async {
            loop {
                let event = self.stream.next_event().await.unwrap()?;
                if !event.data.is_empty() {
                    return Some(serde_json::from_str(&event.data).unwrap());
                }
            }
        };
        in_time("a message", next).await
    }

    async fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        assert_eq!(self.post(&request(id, method, params)).await, 202);
        let answer = self.next().await.unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A call that ends when the upstream releases it.
fn waiting_call(id: u64) -> Value {
    let params = json!({ "name": "wait", "arguments": { "silent": true } });
    request(id, "tools/call", &params)
}

fn cancellation(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
}

#[tokio::test]
async fn open_http_sse_connection_keeps_its_session_in_use() {
    let mut settings = settings();
    settings.limits.session.session_idle = SHORT_IDLE;
    // The connection and its session need one permit.
    settings.limits.streams = 1;
    let world = TestFront::anonymous(settings).await;
    let _client = SseClient::open(&world).await;
    world.wait_for_renewals().await;
}

#[tokio::test]
async fn open_streams_end_with_a_session_that_is_too_old() {
    let mut settings = settings();
    settings.limits.session.session_idle = SHORT_IDLE;
    let world = TestFront::anonymous(settings).await;
    let client = world.legacy("alice").await;
    let mut stream = client.get_stream().await.unwrap();
    let mut sse = SseClient::open(&world).await;
    world.clock.advance(Duration::from_secs(365 * 24 * 3600));
    let end = async { while stream.next_event().await.unwrap().is_some() {} };
    in_time("the end of the GET stream", end).await;
    assert_eq!(sse.next().await, None);
    assert_eq!(sse.post(&request(1, "ping", &json!({}))).await, 404);
}

#[tokio::test]
async fn http_sse_connection_ends_with_its_session() {
    let world = TestFront::anonymous(settings()).await;
    let mut client = SseClient::open(&world).await;
    world.clock.advance(Duration::from_secs(365 * 24 * 3600));
    let list = request(1, "tools/list", &json!({}));
    assert_eq!(client.post(&list).await, 202);
    while let Some(message) = client.next().await {
        let code = &message["error"]["code"];
        assert_eq!(*code, error_code::INVALID_REQUEST, "{message}");
    }
}

#[tokio::test]
async fn second_initialize_on_a_connection_ends_the_session_before() {
    let mut world = TestFront::anonymous(settings()).await;
    let mut client = SseClient::open(&world).await;
    assert_eq!(client.post(&waiting_call(1)).await, 202);
    client.initialize().await;
    // The calls of the former session end with it.
    in_time("the cancellation", world.cancelled.recv())
        .await
        .unwrap();
    let ended = async {
        let ends = || world.upstream.count_ended(ClientSessionChange::Ended);
        while ends() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("the end of the first session", ended).await;
    for id in 2..10 {
        let listed = client.ask(id, "tools/list", &json!({})).await;
        assert!(listed["result"]["tools"].is_array(), "{listed}");
    }
    let ends = world.upstream.count_ended(ClientSessionChange::Ended);
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn client_of_as_many_calls_as_it_may_have_can_ping_answer_and_cancel() {
    let mut world = TestFront::anonymous(settings()).await;
    let mut client = SseClient::open(&world).await;
    for id in 1..=MAX_REQUESTS {
        assert_eq!(client.post(&waiting_call(id)).await, 202);
    }
    let list = request(100, "tools/list", &json!({}));
    assert_eq!(client.post(&list).await, 429);
    let pong = client.ask(101, "ping", &json!({})).await;
    assert_eq!(pong["result"], json!({}));
    let answer = json!({ "jsonrpc": "2.0", "id": "unknown", "result": {} });
    assert_eq!(client.post(&answer).await, 202);
    assert_eq!(client.post(&cancellation(7)).await, 202);
    in_time("the cancellation", world.cancelled.recv())
        .await
        .unwrap();
    // The cancelled call gets no answer, and its place is free soon.
    while client.post(&list).await != 202 {}
    assert_eq!(client.next().await.unwrap()["id"], 100);
}

#[tokio::test]
async fn http_sse_call_can_be_cancelled_during_a_drain() {
    let mut world = TestFront::anonymous(settings()).await;
    // A connection opened before: a draining front accepts no new ones.
    let mut kept = RawSocket::connect(&world.url()).await.unwrap();
    let mut client = SseClient::open(&world).await;
    assert_eq!(client.post(&waiting_call(1)).await, 202);
    let front = world.front.clone();
    let drained = tokio::spawn(async move { front.drain(LONG_DRAIN, ready(())).await });
    // Connections are refused: the drain has begun.
    while tokio::net::TcpStream::connect(world.front.local_addr())
        .await
        .is_ok()
    {
        tokio::task::yield_now().await;
    }
    let body = cancellation(1).to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        client.path,
        body.len()
    );
    kept.write(head.as_bytes()).await.unwrap();
    let taken = in_time("the response", kept.read_until("\r\n\r\n")).await;
    let taken = taken.unwrap();
    assert!(taken.contains(" 202 "), "{taken}");
    in_time("the cancellation", world.cancelled.recv())
        .await
        .unwrap();
    assert_eq!(client.next().await, None, "all messages are answered");
    drop(kept);
    in_time("the end of the drain", drained).await.unwrap();
}

#[tokio::test]
async fn panic_in_an_http_sse_request_is_an_error_for_it_alone() {
    let world = TestFront::anonymous(settings()).await;
    let mut client = SseClient::open(&world).await;
    let params = json!({ "name": "boom", "arguments": { "silent": true } });
    let answer = client.ask(1, "tools/call", &params).await;
    assert_eq!(answer["error"]["code"], error_code::INTERNAL_ERROR);
    let listed = client.ask(2, "tools/list", &json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
}
