//! Requests that reach a process after its successor has taken over, on connections that were idle:
//! those about what the successor has are answered there.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockServerBuilder};
use weir_testkit::{MockBehaviour, MockServer, RawClient, RawSocket};
use weir_wire::{Revision, meta};

use super::handover_bench::HandoverBench;
use crate::harness::{
    CheckedClient, SseClient, Weir, begin_gated_call, retry_params, within_test_timeout,
};

/// A connection of HTTP/1.1 to the process that served when it was opened. It is idle until its last
/// request, in the drain of that process.
struct IdleConnection(RawSocket);

impl IdleConnection {
    /// Opens a connection, and makes a request.
    async fn open(weir: &Weir) -> Self {
        let socket = RawSocket::connect(&weir.url("/mcp")).await.unwrap();
        let mut own = Self(socket);
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        own.post(weir, "/mcp", &[], &ping).await;
        let pong = own.0.read_until(r#""result":{}}"#);
        let pong = within_test_timeout("the first answer", pong).await.unwrap();
        assert!(pong.starts_with("HTTP/1.1 200"), "{pong}");
        own
    }

    /// Posts a message.
    async fn post(&mut self, weir: &Weir, path: &str, headers: &[(&str, &str)], message: &Value) {
        let message = message.to_string();
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n\
             {message}",
            weir.address(),
            message.len()
        );
        self.0.write(request.as_bytes()).await.unwrap();
    }

    /// Posts the last message, after whose answer a process that drains closes the connection.
    /// Returns the whole answer.
    async fn post_last(
        mut self,
        weir: &Weir,
        path: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> String {
        self.post(weir, path, headers, message).await;
        self.read_last().await
    }

    /// Sends the head of the last request, and returns the whole answer.
    async fn send_last(mut self, head: &str) -> String {
        self.0.write(head.as_bytes()).await.unwrap();
        self.read_last().await
    }

    async fn read_last(self) -> String {
        let answer = within_test_timeout("the last answer", self.0.read_to_end()).await;
        answer.unwrap()
    }
}

/// The head of a request for a stream.
fn get_head(weir: &Weir, path: &str, headers: &[(&str, &str)]) -> String {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let address = weir.address();
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{headers}\r\n")
}

/// weir whose idle connections stay open for as long as the test.
async fn bench(server: MockServerBuilder) -> HandoverBench {
    let limits = json!({ "limits": { "drain_idle": "300s" }, "drain": "300s" });
    HandoverBench::with_settings(server, limits).await
}

// Proves A26, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_for_a_stream_of_the_next_process_is_answered_on_it() {
    let server = MockServer::legacy(Revision::V2025_11_25).tool("echo", MockBehaviour::echo());
    let mut bench = bench(server).await;
    let mut idle = vec![IdleConnection::open(&bench.weir).await];
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    idle.push(IdleConnection::open(&bench.weir).await);
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    // Of the newest of three processes, which have a connection each from now on.
    let mut client = SseClient::open(&bench.weir, None).await;
    client.initialize(&bench.weir, json!({})).await;
    for (id, connection) in idle.into_iter().enumerate() {
        let params = json!({ "name": "echo", "arguments": { "n": id } });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let taken = connection.post_last(&bench.weir, &client.path, &[], &call);
        let taken = taken.await;
        assert!(taken.starts_with("HTTP/1.1 202"), "{taken}");
        let answer = client.next().await.unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        let content = &answer["result"]["content"];
        assert_eq!(content[0]["text"], format!(r#"{{"n":{id}}}"#));
    }
    drop(client);
    bench.end();
}

/// A server with a tool `ask`, which asks its client and then does these steps.
fn asking_server(then: &[AnswerStep]) -> MockServerBuilder {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let question = AnswerStep::Ask {
        method: "elicitation/create",
        params: json!({ "message": "Your name?", "requestedSchema": schema }),
    };
    let steps = std::iter::once(question).chain(then.iter().cloned());
    let asking = MockBehaviour::steps(steps.collect::<Vec<_>>()).as_events();
    MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .tool("ask", asking)
}

/// A call that waits for its client's answer in the last process, and the message with the answer,
/// which has a progress token or none.
async fn park_call(bench: &HandoverBench, token: Option<u64>) -> Value {
    let capabilities = json!({ "elicitation": {} });
    let url = bench.weir.url("/mcp");
    let client =
        CheckedClient::with_capabilities(&url, Revision::MODERN, capabilities.clone()).await;
    let arguments = json!({ "n": 1 });
    let asked = client.call("ask", arguments.clone()).await;
    let mut params = retry_params(asked.result(), &arguments);
    params["_meta"] = json!({
        meta::PROTOCOL_VERSION: Revision::MODERN.as_str(),
        meta::CLIENT_CAPABILITIES: capabilities,
    });
    if let Some(token) = token {
        params["_meta"]["progressToken"] = json!(token);
    }
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })
}

/// The headers of a call of `ask`.
const HEADERS_OF_ASK: [(&str, &str); 3] = [
    ("MCP-Protocol-Version", Revision::MODERN.as_str()),
    ("Mcp-Method", "tools/call"),
    ("Mcp-Name", "ask"),
];

// Proves A26, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_a_question_of_the_next_process_goes_on_with_its_call() {
    let mut bench = bench(asking_server(&[AnswerStep::Echo])).await;
    let idle = IdleConnection::open(&bench.weir).await;
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    let call = park_call(&bench, None).await;
    let answer = idle.post_last(&bench.weir, "/mcp", &HEADERS_OF_ASK, &call);
    let answer = answer.await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#"{\"n\":1}"#), "{answer}");
    assert_eq!(bench.mock_server.executions("ask"), 1);
    bench.end();
}

/// One whose stream has begun, and one without a head yet.
// Proves A26, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_the_next_process_has_an_answer_at_the_end_of_the_drain_before() {
    let server = asking_server(&[AnswerStep::Progress(1, 2), AnswerStep::Hang]);
    let settings = json!({ "limits": { "drain_idle": "8s" }, "drain": "16s" });
    let mut bench = HandoverBench::with_settings(server, settings).await;
    let streamed = IdleConnection::open(&bench.weir).await;
    let silent = IdleConnection::open(&bench.weir).await;
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    let reports = park_call(&bench, Some(1)).await;
    let waits = park_call(&bench, None).await;
    let (streamed, silent) = tokio::join!(
        streamed.post_last(&bench.weir, "/mcp", &HEADERS_OF_ASK, &reports),
        silent.post_last(&bench.weir, "/mcp", &HEADERS_OF_ASK, &waits),
    );
    for answer in [streamed, silent] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("the call may have run"), "{answer}");
    }
    bench.end();
}

// Proves A26, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_a_call_in_the_next_process_is_resumed_there() {
    let gate = CallGate::new();
    let server = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .tool("gated", MockBehaviour::gated_after_progress(&gate));
    let mut bench = bench(server).await;
    let idle = IdleConnection::open(&bench.weir).await;
    let client = bench.client(Revision::V2025_11_25).await;
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    let session = client.session().unwrap().to_owned();
    let (exchange, event) = begin_gated_call(&client).await;
    drop(exchange);
    let headers = [
        ("Mcp-Session-Id", &*session),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Last-Event-ID", &*event),
    ];
    gate.open();
    let head = get_head(&bench.weir, "/mcp", &headers);
    let resumed = idle.send_last(&head).await;
    assert!(resumed.starts_with("HTTP/1.1 200"), "{resumed}");
    assert!(resumed.contains(r#"{\"n\":1}"#), "{resumed}");
    drop(client);
    bench.end();
}

// Proves A26, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_of_a_session_begins_in_the_process_with_its_stream() {
    let server = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .with_library();
    let mut bench = bench(server).await;
    let idle = IdleConnection::open(&bench.weir).await;
    let before = bench.client(Revision::V2025_11_25).await;
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    let session = before.session().unwrap().to_owned();
    let client = RawClient::new(&bench.weir.url("/mcp"))
        .with_header("mcp-session-id", &session)
        .with_header("mcp-protocol-version", "2025-11-25");
    let mut stream = client.get_stream().await.unwrap();
    let params = json!({ "uri": "memo:1" });
    let request =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "resources/subscribe", "params": params });
    let headers = [
        ("Mcp-Session-Id", &*session),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let answer = idle
        .post_last(&bench.weir, "/mcp", &headers, &request)
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    bench.mock_server.notify_resource_updated("memo:1");
    loop {
        let next = within_test_timeout("an update", stream.next_message()).await;
        let next = next.unwrap().expect("the stream stays open");
        if next["method"] == "notifications/resources/updated" {
            assert_eq!(next["params"]["uri"], "memo:1", "{next}");
            break;
        }
    }
    drop((stream, client));
    bench.end();
}
