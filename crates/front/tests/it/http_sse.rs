//! Connections of HTTP+SSE clients: their sessions, the limit of pending answers, and drains.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::{Value, json};
use weir_core::port::RecordStore as _;
use weir_core::upstream::ClientSessionChange;
use weir_era::session::LegacySessionRecord;
use weir_listen::OtherProcess;
use weir_testkit::{HttpExchange, RawClient, RawSocket};
use weir_wire::{LogLevel, Revision, error_code};

use crate::drain::LONG_DRAIN;
use crate::process_tasks::AnsweringProcess;
use crate::test_front::{SHORT_IDLE, TestFront, in_time, settings};
use crate::test_ports::{ChangingAccess, Validity};

/// A path for messages that no stream of this process has named.
pub(crate) const UNKNOWN_PATH: &str = "/mcp/messages?sessionId=AAAAAAAAAAAAAAAAAAAAAA";

/// The requests of one client that are answered at the same time.
const MAX_REQUESTS: u64 = 64;

/// A client with its stream and its path for messages.
struct SseClient {
    client: RawClient,
    headers: HeaderMap,
    address: SocketAddr,
    stream: HttpExchange,
    path: String,
    /// The id of the last event that had one.
    last_event: Option<String>,
}

impl SseClient {
    /// Opens a stream, and a session.
    async fn open(world: &TestFront) -> Self {
        let mut client = Self::connect(world, &[]).await;
        client.initialize().await;
        client
    }

    /// Opens a stream alone, with these headers for its messages, too.
    async fn connect(world: &TestFront, given: &[(&'static str, &str)]) -> Self {
        let given = given.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        let headers: HeaderMap = given.collect();
        let mut opened = headers.clone();
        opened.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        let client = world.client();
        let opening = client.clone().with_url(&format!("{}/sse", world.url()));
        let mut stream = opening.send(Method::GET, opened, "").await.unwrap();
        let first = in_time("the first event", stream.next_event()).await;
        let path = first.unwrap().unwrap().data;
        Self {
            client,
            headers,
            address: world.front.local_addr(),
            stream,
            path,
            last_event: None,
        }
    }

    /// Opens a stream with the token of `name`, after this event of an earlier one.
    async fn connect_again(world: &TestFront, name: &str, last_event: &str) -> Self {
        let token = format!("Bearer {name}");
        let headers = [("authorization", &*token), ("last-event-id", last_event)];
        Self::connect(world, &headers).await
    }

    async fn initialize(&mut self) {
        let answer = self.ask(0, "initialize", &hello()).await;
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&ready).await, 202);
    }

    /// Posts a message; returns the status.
    async fn post(&self, message: &Value) -> u16 {
        let url = format!("http://{}{}", self.address, self.path);
        let mut headers = self.headers.clone();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let client = self.client.clone().with_url(&url);
        let sent = client.send(Method::POST, headers, message.to_string());
        in_time("the response", sent).await.unwrap().status.as_u16()
    }

    /// The next message; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        let next = async {
            loop {
                let event = self.stream.next_event().await.unwrap()?;
                if event.id.is_some() {
                    self.last_event = event.id;
                }
                if !event.data.is_empty() {
                    return Some(serde_json::from_str(&event.data).unwrap());
                }
            }
        };
        in_time("a message", next).await
    }

    async fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        assert_eq!(self.post(&request(id, method, params)).await, 202);
        loop {
            let answer = self.next().await.unwrap();
            // A session that goes on is notified of all lists.
            if answer.get("id").is_some() {
                assert_eq!(answer["id"], id, "{answer}");
                return answer;
            }
        }
    }
}

/// The parameters of `initialize`.
fn hello() -> Value {
    json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } })
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
    until_refused(&world).await;
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

/// A front with these credentials and frequent checks, and a client with a call that waits.
async fn calling_client(access: &Arc<ChangingAccess>) -> (TestFront, SseClient) {
    let mut settings = settings();
    settings.limits.keep_alive = Duration::from_millis(5);
    let world = TestFront::with_access(settings, access.clone()).await;
    let old = [("authorization", "Bearer old alice")];
    let mut client = SseClient::connect(&world, &old).await;
    client.initialize().await;
    assert_eq!(client.post(&waiting_call(1)).await, 202);
    world.upstream.wait_for_calls().await;
    (world, client)
}

impl SseClient {
    /// Waits for a few comments: meanwhile the credentials are checked.
    async fn wait_for_comments(&mut self) {
        let mut comments = 0;
        while comments < 20 {
            let event = in_time("a comment", self.stream.next_event()).await;
            comments += event.unwrap().unwrap().comments.len();
        }
    }
}

#[tokio::test]
async fn stream_goes_on_with_the_credentials_of_a_later_message() {
    let access = ChangingAccess::new();
    let (world, mut client) = calling_client(&access).await;
    let new = HeaderValue::from_static("Bearer new alice");
    client.headers.insert(header::AUTHORIZATION, new);
    client.ask(2, "ping", &json!({})).await;
    access.set(Validity::OldRevoked);
    client.wait_for_comments().await;
    let listed = client.ask(3, "tools/list", &json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    world.upstream.release();
    assert_eq!(client.next().await.unwrap()["id"], 1);
    access.set(Validity::Revoked);
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn stream_without_valid_credentials_ends_once_its_calls_are_answered() {
    let access = ChangingAccess::new();
    let (world, mut client) = calling_client(&access).await;
    access.set(Validity::Revoked);
    client.wait_for_comments().await;
    world.upstream.release();
    assert_eq!(client.next().await.unwrap()["id"], 1);
    assert_eq!(client.next().await, None);
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

#[tokio::test]
async fn client_that_connects_again_has_a_session_with_the_same_settings() {
    let world = TestFront::anonymous(settings()).await;
    let mut before = SseClient::open(&world).await;
    let level = json!({ "level": "error" });
    before.ask(1, "logging/setLevel", &level).await;
    let id = before.last_event.clone().unwrap();
    drop(before);
    let mut client = SseClient::connect(&world, &[("last-event-id", &id)]).await;
    let hears = client.next().await.unwrap();
    let method = hears["method"].as_str().unwrap_or_default();
    assert!(method.ends_with("/list_changed"), "{hears}");
    let listed = client.ask(2, "tools/list", &json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    let mut levels = Vec::new();
    world.records.visit(&mut |_, value| {
        levels.push(LegacySessionRecord::decode(value).unwrap().level);
    });
    let all_same = levels.iter().all(|level| *level == Some(LogLevel::Error));
    assert!(all_same && !levels.is_empty(), "{levels:?}");
}

#[tokio::test]
async fn client_that_connects_again_is_notified_of_no_list_that_is_not_declared() {
    let world = TestFront::anonymous(settings()).await;
    let before = SseClient::open(&world).await;
    let id = before.last_event.clone().unwrap();
    let mut client = SseClient::connect(&world, &[("last-event-id", &id)]).await;
    let mut methods = Vec::new();
    // The server has tools and resources. Prompts would come before resources.
    while methods.last() != Some(&json!("notifications/resources/list_changed")) {
        methods.push(client.next().await.unwrap()["method"].take());
    }
    let tools = json!("notifications/tools/list_changed");
    assert_eq!(methods[..methods.len() - 1], [tools]);
}

#[tokio::test]
async fn client_that_gets_no_session_when_it_connects_again_has_a_stream_for_its_next_one() {
    let mut settings = settings();
    settings.limits.session.sessions = 1;
    let world = TestFront::anonymous(settings).await;
    let before = SseClient::open(&world).await;
    let id = before.last_event.clone().unwrap();
    let mut clients = Vec::new();
    for given in [
        ("last-event-id", &*id),
        ("mcp-protocol-version", "2025-06-18"),
    ] {
        let mut client = SseClient::connect(&world, &[given]).await;
        for (id, method, params) in [(1, "tools/list", json!({})), (2, "initialize", hello())] {
            let refused = client.ask(id, method, &params).await;
            assert!(refused["error"]["message"].is_string(), "{refused}");
        }
        clients.push(client);
    }
    drop(before);
    let ended = async {
        while world.records.count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("the end of the first session", ended).await;
    let client = &mut clients[0];
    client.initialize().await;
    let listed = client.ask(3, "tools/list", &json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
}

#[tokio::test]
async fn event_id_of_another_principal_or_none_of_weir_opens_no_session() {
    let world = TestFront::with_tokens(settings()).await;
    let mut ada = SseClient::connect_again(&world, "ada", "").await;
    ada.initialize().await;
    let id = ada.last_event.clone().unwrap();
    let changed = format!("{}A", &id[..id.len() - 1]);
    for (name, id) in [("bob", &*id), ("ada", &changed), ("ada", "7")] {
        let mut other = SseClient::connect_again(&world, name, id).await;
        let refused = other.ask(1, "tools/list", &json!({})).await;
        assert_eq!(refused["error"]["code"], error_code::INVALID_REQUEST);
        let text = refused["error"]["message"].as_str().unwrap();
        assert!(!text.contains("Mcp-Session-Id"), "{text}");
        other.initialize().await;
    }
    let mut again = SseClient::connect_again(&world, "ada", &id).await;
    let listed = again.ask(1, "tools/list", &json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
}

#[tokio::test]
async fn message_for_an_unknown_stream_is_asked_about_in_the_process_before_or_after() {
    for which in [OtherProcess::Predecessor, OtherProcess::Successor] {
        let process = Arc::new(AnsweringProcess::default());
        let world = TestFront::with_process(settings(), which, process.clone()).await;
        let mut client = SseClient::open(&world).await;
        client.path = UNKNOWN_PATH.to_owned();
        let ping = request(1, "ping", &json!({}));
        assert_eq!(client.post(&ping).await, 200, "the answer from there");
        process.has_ended.store(true, Ordering::Relaxed);
        assert_eq!(client.post(&ping).await, 404, "{which:?}");
    }
}

#[tokio::test]
async fn stream_that_begins_during_a_drain_names_no_path_for_messages() {
    let process = Arc::new(AnsweringProcess::default());
    let after = OtherProcess::Successor;
    let world = TestFront::with_process(settings(), after, process.clone()).await;
    let mut kept = RawSocket::connect(&world.url()).await.unwrap();
    let front = world.front.clone();
    let drained = tokio::spawn(async move { front.drain(LONG_DRAIN, ready(())).await });
    until_refused(&world).await;
    let head = "GET /mcp/sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    kept.write(head.as_bytes()).await.unwrap();
    let stream = in_time("the stream", kept.read_to_end()).await.unwrap();
    assert!(stream.contains("retry: 100\n"), "{stream}");
    assert!(!stream.contains("data:"), "{stream}");
    in_time("the end of the drain", drained).await.unwrap();
    assert!(process.requests.lock().is_empty());
}

#[tokio::test]
async fn stream_that_ends_in_a_drain_names_a_short_delay_if_another_process_serves() {
    let after = Arc::new(AnsweringProcess::default());
    for (successor, has_delay) in [(Some(after), true), (None, false)] {
        let world = match successor {
            Some(after) => {
                TestFront::with_process(settings(), OtherProcess::Successor, after).await
            }
            None => TestFront::anonymous(settings()).await,
        };
        let mut client = SseClient::open(&world).await;
        let front = world.front.clone();
        let drained = tokio::spawn(async move { front.drain(LONG_DRAIN, ready(())).await });
        let mut delays = Vec::new();
        while let Some(event) = in_time("an event", client.stream.next_event())
            .await
            .unwrap()
        {
            delays.extend(event.retry);
        }
        assert_eq!(delays == [100], has_delay, "{delays:?}");
        in_time("the end of the drain", drained).await.unwrap();
    }
}

/// The client would wait as long as one of a GET stream after each end of its connection.
#[tokio::test]
async fn messages_on_the_stream_state_no_further_delay() {
    let world = TestFront::anonymous(settings()).await;
    for revision in ["2025-06-18", "2025-11-25"] {
        let named = [("mcp-protocol-version", revision)];
        let mut client = SseClient::connect(&world, &named).await;
        let mut data = String::new();
        while !data.contains("notifications/resources/list_changed") {
            let event = in_time("an event", client.stream.next_event()).await;
            let event = event.unwrap().unwrap();
            assert_eq!(event.retry, None, "{event:?}");
            data = event.data;
        }
    }
}

/// Waits until connections are refused: the drain has begun.
async fn until_refused(world: &TestFront) {
    let address = world.front.local_addr();
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn task_of_the_process_before_is_found_over_http_sse_with_the_credentials_of_the_client() {
    let predecessor = Arc::new(AnsweringProcess::default());
    let before = OtherProcess::Predecessor;
    let world = TestFront::with_process(settings(), before, predecessor.clone()).await;
    let named = [
        ("authorization", "Bearer ada"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let mut client = SseClient::connect(&world, &named).await;
    let about = json!({ "taskId": "task" });
    let state = client.ask(1, "tasks/get", &about).await;
    assert_eq!(state["result"]["status"], "completed", "{state}");
    let result = client.ask(2, "tasks/result", &about).await;
    let content = &result["result"]["content"];
    assert_eq!(content[0]["text"], "from there", "{result}");
    let requests = predecessor.requests.lock();
    assert_eq!(requests.len(), 2);
    let token = HeaderValue::from_static("Bearer ada");
    assert!(
        requests
            .iter()
            .all(|(_, given)| *given == Some(token.clone()))
    );
}

#[tokio::test]
async fn client_that_names_only_its_revision_when_it_connects_again_has_a_session() {
    let world = TestFront::anonymous(settings()).await;
    let named = [("mcp-protocol-version", "2025-06-18")];
    let mut client = SseClient::connect(&world, &named).await;
    let listed = client.ask(1, "tools/list", &json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    let (_, sessions) = world.front.overview().sessions(10);
    let revisions: Vec<_> = sessions.iter().map(|session| session.revision).collect();
    assert_eq!(revisions, [Revision::V2025_06_18]);
}
