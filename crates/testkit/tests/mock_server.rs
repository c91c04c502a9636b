//! The mock server against the raw client: the behaviour that tests of the other crates rely on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, CursorBehaviour, MockTool};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, ModernEnvelope, RawClient};
use weir_wire::{LogLevel, Revision, meta};

async fn client(mock_server: &MockServer, revision: Revision) -> RawClient {
    match revision.is_modern() {
        true => RawClient::new(&mock_server.url()).modern(),
        false => RawClient::new(&mock_server.url())
            .legacy(revision)
            .initialize()
            .await
            .unwrap(),
    }
}

/// Starts a mock server with one tool `t` and a client, in each era in turn.
async fn both_eras(behaviour: &MockBehaviour) -> Vec<(MockServer, RawClient)> {
    let mut pairs = Vec::new();
    for (builder, revision) in [
        (MockServer::modern(), Revision::MODERN),
        (
            MockServer::legacy(Revision::V2025_11_25),
            Revision::V2025_06_18,
        ),
    ] {
        let mock_server = builder.tool("t", behaviour.clone()).start().await;
        let client = client(&mock_server, revision).await;
        pairs.push((mock_server, client));
    }
    pairs
}

async fn called(client: &RawClient) -> io::Result<ClientAnswer> {
    client
        .start_call("t", json!({"a": 1}), json!("tok"))
        .await?
        .finish()
        .await
}

#[tokio::test]
async fn every_revision_lists_all_pages_and_echoes() {
    for revision in Revision::ALL {
        let mock_server = MockServer::dual().tools(7).page_size(3).start().await;
        let client = client(&mock_server, revision).await;
        let tools = client.list_tools().await.unwrap();
        assert_eq!((tools.len(), &tools[6]["name"]), (7, &json!("tool_0006")));
        assert_eq!(mock_server.requests_of("tools/list").len(), 3);
        let answer = client
            .call("tool_0003", json!({"x": [1, null]}))
            .await
            .unwrap();
        assert_eq!(answer.text(), r#"{"x":[1,null]}"#);
        assert_eq!(
            answer.result().get("structuredContent").is_some(),
            revision.has_structured_content()
        );
        assert_eq!(
            answer.result().get("resultType").is_some(),
            revision.is_modern()
        );
        assert_eq!(
            (
                mock_server.executions("tool_0003"),
                mock_server.total_executions()
            ),
            (1, 1)
        );
        assert_eq!(
            client.call("nobody", json!({})).await.unwrap().code(),
            -32602
        );
    }
}

#[tokio::test]
async fn definitions_keep_their_bytes_and_may_need_a_capability() {
    let raw = r#"{ "name":"odd","inputSchema":{"type":"object","x-big":123456789012345678901234567890},"_meta":{"a/b":1.0} }"#;
    let hidden = MockTool::new("hidden").needing("elicitation");
    let mock_server = MockServer::modern()
        .tool_json(raw)
        .with(hidden)
        .start()
        .await;
    let client = RawClient::new(&mock_server.url()).modern();
    let body = client.ask("tools/list", json!({})).await.unwrap().body;
    assert!(String::from_utf8_lossy(&body).contains(raw));
    assert_eq!(client.list_tools().await.unwrap().len(), 1);
    let able = ModernEnvelope {
        capabilities: json!({"elicitation": {}}),
        ..ModernEnvelope::default()
    };
    assert_eq!(
        client.modern_with(able).list_tools().await.unwrap().len(),
        2
    );
}

#[tokio::test]
async fn mock_server_sends_progress_on_request_and_logs_as_its_era_does() {
    let steps = [
        AnswerStep::Progress(1, 2),
        AnswerStep::Log {
            level: LogLevel::Warning,
            unasked: false,
        },
        AnswerStep::Progress(2, 2),
        AnswerStep::Echo,
    ];
    for (_mockup, client) in both_eras(&MockBehaviour::steps(steps)).await {
        let answer = called(&client).await.unwrap();
        let progress: Vec<_> = answer
            .notes("notifications/progress")
            .map(|note| note["params"].clone())
            .collect();
        assert_eq!(
            progress,
            [1, 2].map(|n| json!({"progressToken": "tok", "progress": n, "total": 2}))
        );
        let is_legacy = client.session().is_some();
        let unset = usize::from(is_legacy);
        assert_eq!(answer.notes("notifications/message").count(), unset);
        let silent = client.call("t", json!({})).await.unwrap();
        assert_eq!(silent.messages.len(), 1 + unset);
        let client = if is_legacy {
            client
                .ask("logging/setLevel", json!({"level": "info"}))
                .await
                .unwrap();
            client
        } else {
            client.modern_with(ModernEnvelope {
                log_level: Some("info".to_owned()),
                ..ModernEnvelope::default()
            })
        };
        assert_eq!(
            called(&client)
                .await
                .unwrap()
                .notes("notifications/message")
                .count(),
            1
        );
    }
}

#[tokio::test]
async fn mock_server_broken_answers_have_the_named_fault() {
    for (_mockup, client) in both_eras(&MockBehaviour::bad_json()).await {
        assert!(called(&client).await.is_err());
    }
    for (_mockup, client) in both_eras(&MockBehaviour::wrong_id()).await {
        assert_eq!(called(&client).await.unwrap().last()["id"], "nobody-asked");
    }
    for (_mockup, client) in both_eras(&MockBehaviour::two_responses()).await {
        let answer = called(&client).await.unwrap();
        let texts: Vec<_> = answer
            .messages
            .iter()
            .map(|answer| &answer["result"]["content"][0]["text"])
            .collect();
        assert_eq!(texts, ["first", "second"]);
        assert_eq!(answer.messages[0]["id"], answer.messages[1]["id"]);
    }
    for (_mockup, client) in both_eras(&MockBehaviour::duplicate()).await {
        let answer = called(&client).await.unwrap();
        assert_eq!(
            (answer.messages.len(), &answer.messages[0]),
            (2, answer.last())
        );
    }
    for (_mockup, client) in both_eras(&MockBehaviour::no_answer()).await {
        let answer = called(&client).await.unwrap();
        assert_eq!((answer.messages.len(), answer.events.len()), (0, 1));
    }
    for (_mockup, client) in both_eras(&MockBehaviour::late_progress()).await {
        assert_eq!(
            called(&client).await.unwrap().last()["method"],
            "notifications/progress"
        );
    }
    for (_mockup, client) in both_eras(&MockBehaviour::wrong_progress_token()).await {
        assert_eq!(
            called(&client).await.unwrap().messages[0]["params"]["progressToken"],
            "not-yours"
        );
    }
    for (_mockup, client) in both_eras(&MockBehaviour::batch()).await {
        let answer = called(&client).await.unwrap();
        assert_eq!(
            (
                answer.messages[0]["params"]["progressToken"].as_str(),
                answer.text()
            ),
            (Some("tok"), "from a batch")
        );
    }
}

#[tokio::test]
async fn a_reset_comes_after_exactly_so_many_bytes() {
    for bytes in [0, 1, 40, 200] {
        for (mock_server, client) in both_eras(&MockBehaviour::reset_after(bytes)).await {
            let mut socket = weir_testkit::RawSocket::connect(&mock_server.url())
                .await
                .unwrap();
            let (mut headers, message) = client.envelope(
                "tools/call",
                json!({"name": "t", "arguments": {"pad": "x".repeat(300)}}),
            );
            let body = message.to_string();
            headers.insert("content-length", body.len().into());
            headers.insert("host", "localhost".parse().unwrap());
            let head: String = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
                .collect();
            socket
                .write(format!("POST /mcp HTTP/1.1\r\n{head}\r\n{body}").as_bytes())
                .await
                .unwrap();
            let error = socket.read_until("never there").await.unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::ConnectionReset,
                "{bytes}: {error}"
            );
            assert_eq!(socket.received().len(), bytes);
            assert_eq!(mock_server.executions("t"), 1);
        }
    }
}

#[tokio::test]
async fn mock_server_streams_huge_answers_and_drips_slow_ones() {
    for behaviour in [
        MockBehaviour::huge(3_000_000),
        MockBehaviour::huge(3_000_000).as_events(),
    ] {
        for (_mockup, client) in both_eras(&behaviour).await {
            assert_eq!(called(&client).await.unwrap().text().len(), 3_000_000);
        }
    }
    for (_mockup, client) in
        both_eras(&MockBehaviour::echo().dripping(7, Duration::from_millis(1))).await
    {
        let mut call = client
            .request("tools/call", json!({"name": "t"}))
            .await
            .unwrap();
        assert!(call.next_bytes().await.unwrap().unwrap().len() <= 7);
    }
}

#[tokio::test]
async fn gates_hold_calls_and_dropped_calls_are_counted() {
    let gate = CallGate::new();
    for (mock_server, client) in both_eras(&MockBehaviour::gated_after_progress(&gate)).await {
        let mut kept = client.start_call("t", json!({}), json!(1)).await.unwrap();
        let dropped = client.start_call("t", json!({}), json!(2)).await.unwrap();
        assert_eq!(
            kept.next_message().await.unwrap().unwrap()["method"],
            "notifications/progress"
        );
        mock_server
            .wait_until("both run", |mock_server| mock_server.executions("t") == 2)
            .await;
        drop(dropped);
        mock_server
            .wait_until("one was abandoned", |mock_server| {
                mock_server.counts("t").abandoned == 1
            })
            .await;
        gate.admit(1);
        assert!(kept.next_message().await.unwrap().unwrap()["result"].is_object());
        mock_server
            .wait_until("one completed", |mock_server| {
                mock_server.counts("t").completed == 1
            })
            .await;
    }
}

#[tokio::test]
async fn a_hanging_call_has_no_head_and_its_client_may_go() {
    for (mock_server, client) in both_eras(&MockBehaviour::hang()).await {
        let call = tokio::spawn(async move { client.call("t", json!({})).await });
        mock_server
            .wait_until("it runs", |mock_server| mock_server.executions("t") == 1)
            .await;
        call.abort();
        mock_server
            .wait_until("it was abandoned", |mock_server| {
                mock_server.counts("t").abandoned == 1
            })
            .await;
    }
}

#[tokio::test]
async fn a_cancel_ends_that_call_alone() {
    let gate = CallGate::new();
    let mock_server = MockServer::legacy(Revision::V2025_11_25)
        .tool("t", MockBehaviour::gated_after_progress(&gate))
        .start()
        .await;
    let one = client(&mock_server, Revision::V2025_11_25).await;
    let other = client(&mock_server, Revision::V2025_11_25).await;
    let mut calls = [
        one.start_call("t", json!({}), json!(1)).await.unwrap(),
        other.start_call("t", json!({}), json!(1)).await.unwrap(),
    ];
    for call in &mut calls {
        call.next_message().await.unwrap();
    }
    let id = mock_server.requests_of("tools/call")[0].message["id"].clone();
    one.notify("notifications/cancelled", json!({"requestId": id}))
        .await
        .unwrap();
    let [first, second] = calls;
    assert_eq!(first.finish().await.unwrap().messages.len(), 0);
    gate.open();
    assert!(second.finish().await.unwrap().result().is_object());
    assert_eq!(
        (
            mock_server.counts("t").cancelled,
            mock_server.counts("t").completed
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_server_may_ask_in_the_middle_of_a_call() {
    let ask = MockBehaviour::ask("ping", Value::Null);
    let mock_server = MockServer::legacy(Revision::V2025_06_18)
        .tool("t", ask)
        .start()
        .await;
    let client = client(&mock_server, Revision::V2025_06_18).await;
    let mut call = client.start_call("t", json!({}), json!(1)).await.unwrap();
    let question = call.next_message().await.unwrap().unwrap();
    assert_eq!(question["method"], "ping");
    assert_eq!(
        client
            .respond(&question["id"], json!({}))
            .await
            .unwrap()
            .status,
        202
    );
    assert!(call.finish().await.unwrap().result().is_object());
    assert_eq!(mock_server.answers()[0]["result"], json!({}));
}

#[tokio::test]
async fn changes_reach_listeners_and_sessions_can_be_lost() {
    for status in [404, 400] {
        let mock_server = MockServer::legacy(Revision::V2025_11_25)
            .tools(1)
            .lost_session_status(status)
            .start()
            .await;
        let client = client(&mock_server, Revision::V2025_11_25).await;
        let mut stream = client.get_stream().await.unwrap();
        mock_server.set_tools(MockTool::numbered(2));
        mock_server.notify_list_changed_times(3);
        for _ in 0..3 {
            assert_eq!(
                stream.next_message().await.unwrap().unwrap()["method"],
                "notifications/tools/list_changed"
            );
        }
        assert_eq!(
            (
                client.list_tools().await.unwrap().len(),
                mock_server.listeners(),
                mock_server.sessions()
            ),
            (2, 1, 1)
        );
        mock_server.drop_sessions();
        assert_eq!(stream.next_message().await.unwrap(), None);
        assert_eq!(
            client.ask("ping", json!({})).await.unwrap().status.as_u16(),
            status
        );
        mock_server
            .wait_until("nobody listens", |mock_server| mock_server.listeners() == 0)
            .await;
    }
    let mock_server = MockServer::modern().start().await;
    let client = RawClient::new(&mock_server.url()).modern();
    let mut stream = client
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    let first = stream.next_message().await.unwrap().unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    mock_server.notify_list_changed();
    let change = stream.next_message().await.unwrap().unwrap();
    assert_eq!(
        change["params"]["_meta"][meta::SUBSCRIPTION_ID],
        first["params"]["_meta"][meta::SUBSCRIPTION_ID]
    );
}

// Proves R068.
#[tokio::test]
async fn mock_server_can_answer_the_probe_with_every_behaviour() {
    for (behaviour, status) in [
        (
            MockBehaviour::error(-32601, "no such method", Value::Null),
            200,
        ),
        (MockBehaviour::status(400, "text/plain", "Bad Request"), 400),
        (
            MockBehaviour::status(404, "text/html", "<html></html>"),
            404,
        ),
        (MockBehaviour::status(405, "text/plain", ""), 405),
        (
            MockBehaviour::error(
                -32022,
                "no",
                json!({"supported": ["2027-01-01"], "requested": "x"}),
            )
            .with_status(400),
            400,
        ),
        (MockBehaviour::error(-32602, "no", Value::Null), 200),
        (MockBehaviour::unauthorized(), 401),
        (MockBehaviour::retry_after(503, 7), 503),
        (MockBehaviour::redirect("http://127.0.0.1:1/"), 307),
    ] {
        let mock_server = MockServer::legacy(Revision::V2025_06_18)
            .tools(1)
            .with_rule("server/discover", behaviour)
            .start()
            .await;
        let probe = RawClient::new(&mock_server.url())
            .modern()
            .ask("server/discover", Value::Null)
            .await
            .unwrap();
        assert_eq!(probe.status.as_u16(), status);
        assert_eq!(
            client(&mock_server, Revision::V2025_06_18)
                .await
                .list_tools()
                .await
                .unwrap()
                .len(),
            1
        );
        assert_eq!(mock_server.total_executions(), 0);
    }
    let silent = MockServer::legacy(Revision::V2025_06_18).start().await;
    let probe = RawClient::new(&silent.url())
        .modern()
        .ask("server/discover", Value::Null)
        .await
        .unwrap();
    assert_eq!((probe.status.as_u16(), probe.code()), (400, -32600));
}

#[tokio::test]
async fn rules_run_out_and_behaviours_take_turns() {
    let tool =
        MockTool::new("t").does_in_turn([MockBehaviour::text("one"), MockBehaviour::text("two")]);
    let mock_server = MockServer::modern().with(tool).start().await;
    let client = RawClient::new(&mock_server.url()).modern();
    mock_server.add_rule("tools/call", 1, MockBehaviour::retry_after(429, 1));
    assert_eq!(
        client
            .call("t", json!({}))
            .await
            .unwrap()
            .header("retry-after"),
        Some("1")
    );
    for text in ["one", "two", "two"] {
        assert_eq!(client.call("t", json!({})).await.unwrap().text(), text);
    }
    assert_eq!(
        (
            mock_server.executions("t"),
            mock_server.requests_of("tools/call").len()
        ),
        (3, 4)
    );
}

#[tokio::test]
async fn a_modern_server_is_strict_and_a_version_can_be_refused() {
    let mock_server = MockServer::modern().tools(1).start().await;
    let client = RawClient::new(&mock_server.url()).modern();
    let bare = RawClient::new(&mock_server.url())
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!((bare.status.as_u16(), bare.code()), (400, -32020));
    assert_eq!(client.ask("ping", json!({})).await.unwrap().status, 404);
    let future = ModernEnvelope {
        version: "2099-01-01".to_owned(),
        ..ModernEnvelope::default()
    };
    assert_eq!(
        client
            .clone()
            .modern_with(future)
            .ask("tools/list", json!({}))
            .await
            .unwrap()
            .code(),
        -32022
    );
    let input = MockBehaviour::input_required(json!({"k": {"method": "roots/list"}}), Some("s"));
    mock_server.set_tools([MockTool::new("t").does(input)]);
    assert_eq!(
        client.call("t", json!({})).await.unwrap().result()["resultType"],
        "input_required"
    );
    let seen = mock_server.requests_of("tools/call");
    assert_eq!(
        (seen[0].tool(), seen[0].header("mcp-name")),
        (Some("t"), Some("t"))
    );
    assert_eq!(seen[0].meta()[meta::PROTOCOL_VERSION], "2026-07-28");
}

#[tokio::test]
async fn mock_server_can_send_faulty_cursors() {
    let mock_server = MockServer::modern()
        .cursors(CursorBehaviour::Endless)
        .page_size(2)
        .start()
        .await;
    let client = RawClient::new(&mock_server.url()).modern();
    let page = client
        .ask("tools/list", json!({"cursor": "from:4"}))
        .await
        .unwrap();
    assert_eq!(page.result()["nextCursor"], "from:6");
    assert_eq!(
        client
            .ask("tools/list", json!({"cursor": "no"}))
            .await
            .unwrap()
            .code(),
        -32602
    );
    let empty = MockServer::modern()
        .tools(3)
        .cursors(CursorBehaviour::Empty)
        .page_size(2)
        .start()
        .await;
    assert_eq!(
        RawClient::new(&empty.url())
            .modern()
            .list_tools()
            .await
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn a_server_stops_and_comes_back_on_its_port() {
    let mut mock_server = MockServer::legacy(Revision::V2025_06_18)
        .tools(1)
        .start()
        .await;
    let old = client(&mock_server, Revision::V2025_06_18).await;
    let mut stream = old.get_stream().await.unwrap();
    mock_server.stop().await;
    assert!(!matches!(stream.next_message().await, Ok(Some(_))));
    assert_eq!(
        old.ask("ping", json!({})).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
    mock_server.restart().await;
    assert_eq!(old.ask("ping", json!({})).await.unwrap().status, 404);
    assert_eq!(
        client(&mock_server, Revision::V2025_06_18)
            .await
            .list_tools()
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(mock_server.requests_of("initialize").len(), 2);
}

#[tokio::test]
async fn http2_and_servers_without_sessions() {
    let mock_server = MockServer::dual()
        .tools(1)
        .without_sessions()
        .http2()
        .start()
        .await;
    let client = RawClient::new(&mock_server.url()).with_http2();
    assert_eq!(client.clone().modern().list_tools().await.unwrap().len(), 1);
    let legacy = client
        .legacy(Revision::V2024_11_05)
        .initialize()
        .await
        .unwrap();
    assert_eq!(
        (legacy.session(), legacy.list_tools().await.unwrap().len()),
        (None, 1)
    );
    let quiet = MockServer::legacy(Revision::V2025_06_18)
        .without_get_stream()
        .without_list_changed()
        .start()
        .await;
    let (client, answer) = RawClient::new(&quiet.url())
        .legacy(Revision::V2025_06_18)
        .initialize_with(json!({}))
        .await
        .unwrap();
    assert_eq!(answer.result()["capabilities"]["tools"], json!({}));
    assert_eq!(client.get_stream().await.unwrap().status, 405);
}
