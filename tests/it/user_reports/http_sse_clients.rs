//! Clients of HTTP+SSE, the transport of 2024-11-05.

use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockTool};
use weir_testkit::{HttpExchange, MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::{both_eras, weir_over};
use crate::admin::OperatorClient;
use crate::harness::{CheckedClient, Weir, wait_until, within_test_timeout};

/// A client with its stream and its path for messages.
struct HttpSseClient {
    stream: HttpExchange,
    messages: RawClient,
    path: String,
}

fn posting() -> HeaderMap {
    [(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    )]
    .into_iter()
    .collect()
}

impl HttpSseClient {
    async fn open(weir: &Weir, endpoint: &str) -> Self {
        Self::open_with(weir, endpoint, json!({})).await
    }

    async fn open_with(weir: &Weir, endpoint: &str, capabilities: Value) -> Self {
        let mut client = Self::connect(weir, endpoint).await;
        let answer = client.initialize(1, capabilities).await;
        assert_eq!(
            answer["result"]["protocolVersion"], "2024-11-05",
            "{answer}"
        );
        client
            .post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await;
        client
    }

    /// Opens the stream without a session.
    async fn connect(weir: &Weir, endpoint: &str) -> Self {
        let raw = RawClient::new(&weir.url(&format!("{endpoint}/sse")));
        let accept = [(
            http::header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        )]
        .into_iter()
        .collect();
        let mut stream = within_test_timeout("the stream", raw.send(Method::GET, accept, ""))
            .await
            .unwrap();
        assert!(
            stream.status.is_success() && stream.is_stream(),
            "{:?}",
            stream.status
        );
        let first = within_test_timeout("the endpoint", stream.next_event())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            first.event.as_deref(),
            Some("endpoint"),
            "R107: it comes first"
        );
        assert!(
            first.data.starts_with(&format!("{endpoint}/messages?")),
            "{first:?}"
        );
        let messages = RawClient::new(&weir.url(&first.data));
        Self {
            stream,
            messages,
            path: first.data,
        }
    }

    async fn initialize(&mut self, id: u64, capabilities: Value) -> Value {
        let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": capabilities, "clientInfo": { "name": "old", "version": "1" } });
        self.ask(id, "initialize", hello).await
    }

    async fn post(&self, message: &Value) {
        let answer = self
            .messages
            .send(Method::POST, posting(), message.to_string())
            .await
            .unwrap();
        let answer = within_test_timeout("the post", answer.finish())
            .await
            .unwrap();
        assert_eq!((answer.status.as_u16(), answer.body.len()), (202, 0));
    }

    async fn next(&mut self) -> Value {
        loop {
            let event = within_test_timeout("an event", self.stream.next_event())
                .await
                .unwrap()
                .unwrap();
            if !event.data.is_empty() {
                assert_eq!(event.event.as_deref(), Some("message"), "R107");
                return serde_json::from_str(&event.data).unwrap();
            }
        }
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }
}

/// The stream is open before the client is initialized. A server may list fewer tools for other
/// clients than for one that can be asked. The notifications on the stream must be about the
/// client's own list, or it would list again too early and keep the old one.
// Proves R107, R202.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_a_client_that_can_be_asked_follows_its_own_list() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let _client = HttpSseClient::open_with(&weir, "/mcp", json!({ "sampling": {} })).await;
    let is_asked_as = |upstream: &MockServer| {
        let opened = upstream.requests_of("initialize");
        opened.iter().any(|asked| {
            asked.message["params"]["capabilities"]
                .get("sampling")
                .is_some()
        })
    };
    // Only the stream needs the list of this kind of client.
    within_test_timeout(
        "the list of clients that can be asked",
        upstream.wait_until("it is followed", is_asked_as),
    )
    .await;
}

// Proves R107.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_http_sse_has_everything_on_its_one_stream() {
    for (_, builder) in both_eras() {
        let upstream = builder.tools(2).with_library().start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let mut client = HttpSseClient::open(&weir, "/mcp").await;
        let listed = client.ask(2, "tools/list", json!({})).await;
        assert_eq!(
            listed["result"]["tools"].as_array().map(Vec::len),
            Some(2),
            "{listed}"
        );
        let called = client
            .ask(
                3,
                "tools/call",
                json!({ "name": "one__tool_0000", "arguments": { "a": 1 } }),
            )
            .await;
        assert_eq!(called["result"]["content"][0]["text"], r#"{"a":1}"#);
        let refused = client
            .ask(4, "tools/call", json!({ "name": "nothing" }))
            .await;
        assert_eq!(refused["error"]["code"], -32602);
        // Changes and updates come on it, too.
        let subscribed = client
            .ask(5, "resources/subscribe", json!({ "uri": "one+memo:1" }))
            .await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
        upstream.notify_resource_updated("memo:1");
        let updated = client.next().await;
        assert_eq!(
            (updated["method"].as_str(), &updated["params"]["uri"]),
            (
                Some("notifications/resources/updated"),
                &json!("one+memo:1")
            )
        );
        // The end of the stream ends the session, and that ends its subscriptions.
        drop(client);
        upstream
            .wait_until("nobody is told any more", |upstream| {
                upstream.subscriptions().is_empty()
            })
            .await;
    }
}

// Proves R129.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_http_sse_reads_structured_content_as_text() {
    let result = |text: &str| json!({ "content": [{ "type": "text", "text": text }], "structuredContent": { "n": 1 } });
    for (_, builder) in both_eras() {
        let upstream = builder
            .tool("small", MockBehaviour::result(result("words")))
            .tool("large", MockBehaviour::result(result(&"x".repeat(200_000))))
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        let mut client = HttpSseClient::open(&weir, "/mcp").await;
        for (id, tool) in [(2, "one__small"), (3, "one__large")] {
            let called = client
                .ask(id, "tools/call", json!({ "name": tool, "arguments": {} }))
                .await;
            let content = called["result"]["content"].as_array().unwrap();
            assert_eq!(
                (content.len(), &content[1]),
                (2, &json!({ "type": "text", "text": r#"{"n":1}"# })),
                "{tool}"
            );
        }
    }
}

// Proves R107.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_message_is_counted_once_under_its_mcp_method() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let mut client = HttpSseClient::open(&weir, "/mcp").await;
    client
        .ask(
            2,
            "tools/call",
            json!({ "name": "one__tool_0000", "arguments": {} }),
        )
        .await;
    client
        .ask(3, "tools/call", json!({ "name": "nothing" }))
        .await;
    let counted = |method: &str, outcome: &str| {
        let labels = [
            format!("mcp_method_name=\"{method}\""),
            format!("outcome=\"{outcome}\""),
        ];
        weir.metric(
            "mcp_server_operation_duration_seconds_count",
            &labels.each_ref().map(String::as_str),
        )
    };
    // It counts once all of its answer was handed over, which the client may see a moment before.
    wait_until("both calls to be counted", || {
        let now = (
            counted("tools/call", "ok"),
            counted("tools/call", "protocol_error"),
        );
        (now == (1.0, 1.0)).then_some(())
    });
    assert_eq!(
        (counted("initialize", "ok"), counted("POST", "ok")),
        (1.0, 0.0)
    );
}

// Proves R108.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn post_without_its_own_sse_session_answers_404() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = HttpSseClient::open(&weir, "/mcp").await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let post = async |path: &str| {
        let answer = RawClient::new(&weir.url(path))
            .send(Method::POST, posting(), ping.clone())
            .await
            .unwrap();
        answer.status.as_u16()
    };
    for path in [
        "/mcp/messages",
        "/mcp/messages?sessionId=",
        "/mcp/messages?sessionId=AAAAAAAAAAAAAAAAAAAAAA",
    ] {
        assert_eq!(post(path).await, 404, "{path}");
    }
    // The path of another endpoint.
    let own = client.messages.clone();
    assert_eq!(
        post(&client.path.replace("/mcp/messages", "/mcp/one/messages")).await,
        404
    );
    assert_eq!(post(&client.path).await, 202);
    let answer = own.send(Method::GET, HeaderMap::new(), "").await.unwrap();
    assert_eq!(answer.status, 405);
    let off = Weir::with_config(
        json!({ "upstreams": { "one": { "url": upstream.url() } }, "http_sse": false }),
    );
    let raw = RawClient::new(&off.url("/mcp/sse")).legacy(Revision::V2024_11_05);
    assert_eq!(
        raw.send(Method::GET, HeaderMap::new(), "")
            .await
            .unwrap()
            .status,
        404,
        "switched off"
    );
}

/// A client with as many calls as are answered at the same time has to answer their questions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_of_an_http_sse_client_may_wait_for_its_answers() {
    const CALLS: u64 = 64;
    let asking = AnswerStep::Ask {
        method: "sampling/createMessage",
        params: json!({ "messages": [], "maxTokens": 9 }),
    };
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("ask", MockBehaviour::steps([asking, AnswerStep::Answer]))
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let mut client = HttpSseClient::open_with(&weir, "/mcp", json!({ "sampling": {} })).await;
    let params = json!({ "name": "one__ask", "arguments": {} });
    for id in 100..100 + CALLS {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        client.post(&call).await;
    }
    let mut questions = Vec::new();
    while questions.len() < CALLS as usize {
        let question = client.next().await;
        assert_eq!(question["method"], "sampling/createMessage", "{question}");
        questions.push(question["id"].clone());
    }
    let said =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "yes" } });
    for id in questions {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said });
        client.post(&answer).await;
    }
    for _ in 0..CALLS {
        let answer = client.next().await;
        let text = answer["result"]["content"][0]["text"].as_str();
        assert_eq!(text, Some(&*said.to_string()), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_client_is_notified_within_one_stream_permit() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "limits": { "streams": 1 },
    }));
    let mut client = HttpSseClient::open(&weir, "/mcp").await;
    let listed = client.ask(2, "tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1));
    upstream.set_tools([MockTool::new("new")]);
    upstream.notify_list_changed();
    let notified = client.next().await;
    assert_eq!(notified["method"], "notifications/tools/list_changed");
    let second = RawClient::new(&weir.url("/mcp/sse")).legacy(Revision::V2024_11_05);
    let refused = second
        .send(Method::GET, HeaderMap::new(), "")
        .await
        .unwrap();
    assert_eq!(refused.status, 503, "it holds the permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_connection_is_one_open_stream_from_its_beginning_to_its_end() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": upstream.url() } }));
    let open = |weir: &Weir| weir.metric("weir_streams", &[r#"kind="legacy""#]);
    let mut client = HttpSseClient::connect(&weir, "/mcp").await;
    assert_eq!(open(&weir), 1.0, "before `initialize`");
    client.initialize(1, json!({})).await;
    client.ask(2, "ping", json!({})).await;
    assert_eq!(open(&weir), 1.0, "with a session");
    let clients = OperatorClient::of(&weir).get_json("/admin/clients").await;
    assert_eq!(clients["streams"][0]["kind"], "http_sse", "{clients}");
    drop(client);
    wait_until("the stream to end", || (open(&weir) < 0.5).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_initialize_of_an_http_sse_client_is_an_error_on_its_stream() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "limits": { "sessions": 1 },
    }));
    let first = HttpSseClient::open(&weir, "/mcp").await;
    let mut second = HttpSseClient::connect(&weir, "/mcp").await;
    let refused = second.initialize(7, json!({})).await;
    let error = &refused["error"];
    assert_eq!(
        (&error["code"], &error["data"]["reason"]),
        (&json!(1005), &json!("sessions"))
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("too many sessions"),
        "{error}"
    );
    assert_eq!(error["data"]["retryAfterMs"], 60_000);
    // The client may try again on the same connection, once the other session has ended.
    drop(first);
    let again = async { while second.initialize(8, json!({})).await["result"].is_null() {} };
    within_test_timeout("the session", again).await;
}

// Proves R078.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_http_sse_alone_is_found_or_named_and_serves_clients_of_both_eras() {
    let upstream = MockServer::modern().tools(3).with_library().start().await;
    let old = weir_over(&[("one", &upstream)]);
    let url = old.url("/mcp/one/sse");
    for protocol in ["auto", "sse"] {
        let weir = Weir::with_config(
            json!({ "upstreams": { "far": { "url": url, "protocol": protocol } } }),
        );
        for revision in super::BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            assert_eq!(client.list_tool_names().await.len(), 3, "{protocol}");
            let called = client.call("far__tool_0001", json!({ "b": [2] })).await;
            assert_eq!(called.text(), r#"{"b":[2]}"#, "{protocol}");
            let large = "x".repeat(300_000);
            assert!(
                client
                    .call("far__tool_0001", json!({ "l": large }))
                    .await
                    .text()
                    .len()
                    > 300_000
            );
            let refused = client.call("far__nothing", json!({})).await;
            assert_eq!(refused.code(), -32602);
            let read = client
                .ask("resources/read", json!({ "uri": "far+memo:1" }))
                .await;
            assert_eq!(read.result()["contents"][0]["text"], "of memo:1");
        }
        let client = HttpSseClient::open(&weir, "/mcp").await;
        let mut client = client;
        assert_eq!(
            client
                .ask(2, "resources/subscribe", json!({ "uri": "far+memo:1" }))
                .await["result"],
            json!({})
        );
        upstream.notify_resource_updated("memo:1");
        assert_eq!(client.next().await["params"]["uri"], "far+memo:1");
    }
}
