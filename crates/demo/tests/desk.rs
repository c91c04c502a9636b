//! The modern server, seen by a client that speaks raw HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir_demo::RunningServer;
use weir_testkit::{ClientAnswer, ModernEnvelope, RawClient};
use weir_wire::meta;

async fn start() -> (RunningServer, RawClient) {
    let server = weir_demo::start_desk(TcpListener::bind("127.0.0.1:0").await.unwrap())
        .await
        .unwrap();
    let client = RawClient::new(&server.url()).modern();
    (server, client)
}

/// Sends a request after `spoil` has changed it.
async fn spoilt(
    client: &RawClient,
    method: &str,
    params: Value,
    spoil: impl FnOnce(&mut HeaderMap, &mut Value),
) -> ClientAnswer {
    let (mut headers, mut message) = client.envelope(method, params);
    spoil(&mut headers, &mut message);
    let answer = client
        .send(Method::POST, headers, message.to_string())
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    assert_eq!(
        answer.last()["id"],
        message["id"],
        "r034: every error echoes its id"
    );
    answer
}

// Proves R051, R052, R053, R056.
#[tokio::test]
async fn discover_describes_the_server() {
    let (_server, client) = start().await;
    let answer = client.ask("server/discover", Value::Null).await.unwrap();
    let result = answer.result();
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        result["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    assert_eq!(
        (&result["resultType"], &result["cacheScope"]),
        (&json!("complete"), &json!("public"))
    );
    assert!(result["ttlMs"].is_u64() && result.get("serverInfo").is_none());
    assert_eq!(result["_meta"][meta::SERVER_INFO]["name"], "desk");
    assert_eq!(answer.header("mcp-session-id"), None);
}

#[tokio::test]
async fn tools_are_listed_and_called() {
    let (_server, client) = start().await;
    let tools = client.list_tools().await.unwrap();
    assert_eq!(
        tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(),
        ["calculate", "countdown", "now"]
    );
    let sum = client
        .call("calculate", json!({"expression": "(1 + 2) * 3 ^ 2"}))
        .await
        .unwrap();
    assert_eq!(
        (sum.text(), &sum.result()["structuredContent"]),
        ("27", &json!({"value": 27.0}))
    );
    for arguments in [
        json!({"expression": "1 / 0"}),
        json!({"expression": 7}),
        json!({}),
    ] {
        let failed = client.call("calculate", arguments).await.unwrap();
        assert_eq!(
            (failed.status.as_u16(), &failed.result()["isError"]),
            (200, &json!(true))
        );
    }
    let time = client
        .call("now", json!({"offset": "+05:30"}))
        .await
        .unwrap();
    assert!(time.text().ends_with("+05:30"), "{}", time.text());
    assert_eq!(time.result()["structuredContent"]["offsetSeconds"], 19_800);
    assert_eq!(
        client
            .call("now", json!({"offset": "Mars"}))
            .await
            .unwrap()
            .result()["isError"],
        true
    );
    let unknown = client.call("coin_flip", json!({})).await.unwrap();
    assert_eq!((unknown.status.as_u16(), unknown.code()), (200, -32602));
}

// Proves R009, R019.
#[tokio::test]
async fn to_headers_must_agree_with_the_body() {
    let (_server, client) = start().await;
    let call = || json!({"name": "now", "arguments": {}});
    for name in ["mcp-protocol-version", "mcp-method", "mcp-name"] {
        let missing = spoilt(&client, "tools/call", call(), |headers, _| {
            drop(headers.remove(name))
        })
        .await;
        assert_eq!(
            (missing.status.as_u16(), missing.code()),
            (400, -32020),
            "{name}"
        );
    }
    for (name, value) in [
        ("mcp-protocol-version", "2099-01-01"),
        ("mcp-method", "tools/list"),
        ("mcp-method", "TOOLS/CALL"),
        ("mcp-name", "calculate"),
        ("mcp-name", "=?base64?SGVsbG8?="),
    ] {
        let set = |headers: &mut HeaderMap, _: &mut Value| {
            drop(headers.insert(name, HeaderValue::from_static(value)))
        };
        let wrong = spoilt(&client, "tools/call", call(), set).await;
        assert_eq!(
            (wrong.status.as_u16(), wrong.code()),
            (400, -32020),
            "{name}: {value}"
        );
    }
    let encoded = HeaderValue::from_static("=?base64?bm93?=");
    let fine = spoilt(&client, "tools/call", call(), |headers, _| {
        drop(headers.insert("mcp-name", encoded))
    })
    .await;
    assert_eq!(fine.result()["isError"], false);
}

// Proves R026, R027.
#[tokio::test]
async fn meta_is_required_but_for_client_info() {
    let (_server, client) = start().await;
    for key in [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES] {
        let spoil = |_: &mut HeaderMap, message: &mut Value| {
            message["params"]["_meta"]
                .as_object_mut()
                .unwrap()
                .remove(key);
        };
        let answer = spoilt(&client, "tools/list", json!({}), spoil).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, -32602),
            "{key}"
        );
    }
    let anonymous = |_: &mut HeaderMap, message: &mut Value| {
        message["params"]["_meta"]
            .as_object_mut()
            .unwrap()
            .remove(meta::CLIENT_INFO);
    };
    assert_eq!(
        spoilt(&client, "tools/list", json!({}), anonymous)
            .await
            .status,
        200
    );
}

// Proves R028, R029, R030, R054.
#[tokio::test]
async fn unknown_methods_and_versions() {
    let (server, client) = start().await;
    for method in [
        "unknown/method",
        "initialize",
        "ping",
        "logging/setLevel",
        "prompts/list",
        "tasks/list",
    ] {
        let answer = client.ask(method, json!({})).await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, -32601),
            "{method}"
        );
    }
    let future = ModernEnvelope {
        version: "2099-01-01".to_owned(),
        ..ModernEnvelope::default()
    };
    let answer = RawClient::new(&server.url())
        .modern_with(future)
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!((answer.status.as_u16(), answer.code()), (400, -32022));
    assert_eq!(
        answer.error()["data"],
        json!({"supported": ["2026-07-28"], "requested": "2099-01-01"})
    );
    let legacy = RawClient::new(&server.url());
    let old = legacy
        .ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
        )
        .await
        .unwrap();
    assert_eq!((old.status.as_u16(), old.code()), (400, -32022));
}

// Proves R001, R002, R003, R006, R031, R047.
#[tokio::test]
async fn requests_refused_before_the_body() {
    let (server, client) = start().await;
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("host", "evil.example"),
        ("origin", "null"),
    ] {
        let answer = client
            .clone()
            .with_header(name, value)
            .ask("tools/list", json!({}))
            .await
            .unwrap();
        assert_eq!(answer.status, 403, "{name}: {value}");
    }
    for (name, value) in [
        ("origin", "http://localhost:3000"),
        ("host", "[::1]:80"),
        ("host", "127.0.0.1"),
    ] {
        let answer = client
            .clone()
            .with_header(name, value)
            .ask("tools/list", json!({}))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{name}: {value}");
    }
    assert_eq!(client.get_stream().await.unwrap().status, 405);
    assert_eq!(client.delete().await.unwrap().header("allow"), Some("POST"));
    let plain = client
        .clone()
        .with_header("content-type", "text/plain")
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!(plain.status, 415);
    let picky = client
        .clone()
        .with_header("accept", "application/json")
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!(picky.status, 406);
    assert_eq!(
        client.respond(&json!(1), json!({})).await.unwrap().status,
        400
    );
    assert_eq!(
        client
            .notify("notifications/cancelled", json!({}))
            .await
            .unwrap()
            .status,
        202
    );
    let large = client
        .call("calculate", json!({"expression": "1".repeat(300_000)}))
        .await;
    // The server may close while the client still writes; either way no expression was evaluated.
    assert!(large.map_or(true, |answer| answer.status == 413));
    assert_eq!(
        RawClient::new(&server.url().replace("/mcp", "/"))
            .ask("ping", json!({}))
            .await
            .unwrap()
            .status,
        404
    );
}

#[tokio::test]
async fn a_countdown_reports_progress_and_logs_then_ends() {
    let (server, _) = start().await;
    let client = RawClient::new(&server.url());
    let client = client.modern_with(ModernEnvelope {
        log_level: Some("debug".to_owned()),
        ..ModernEnvelope::default()
    });
    let call = client
        .start_call("countdown", json!({"from": 3, "interval_ms": 1}), json!(42))
        .await
        .unwrap();
    let answer = call.finish().await.unwrap();
    let seen: Vec<_> = answer
        .notes("notifications/progress")
        .map(|note| note["params"]["progress"].clone())
        .collect();
    assert_eq!(seen, [1, 2, 3]);
    assert_eq!(
        answer.notes("notifications/progress").next().unwrap()["params"]["progressToken"],
        42
    );
    assert_eq!(answer.notes("notifications/message").count(), 1);
    assert_eq!(answer.text(), "Counted down from 3: lift-off!");
    assert_eq!(answer.header("x-accel-buffering"), Some("no"), "r038");
    assert!(answer.events.iter().all(|event| event.id.is_none()), "r041");
    let silent = client
        .modern()
        .call("countdown", json!({"from": 2, "interval_ms": 1}))
        .await
        .unwrap();
    assert_eq!(silent.messages.len(), 1);
    let bad = RawClient::new(&server.url())
        .modern()
        .call("countdown", json!({"from": 0}))
        .await
        .unwrap();
    assert_eq!(bad.result()["isError"], true);
}

#[tokio::test]
async fn closing_the_stream_cancels_a_countdown_and_frees_its_slot() {
    let (_server, client) = start().await;
    let arguments = json!({"from": 600, "interval_ms": 60_000});
    let mut running = Vec::new();
    for _ in 0..64 {
        let call = client
            .start_call("countdown", arguments.clone(), json!(1))
            .await
            .unwrap();
        assert!(call.is_stream());
        running.push(call);
    }
    let full = client.call("countdown", arguments.clone()).await.unwrap();
    assert_eq!(full.result()["isError"], true);
    drop(running);
    // The server notices the closed connections in its own time: ask until a permit is free, at
    // most 1,000 times.
    for _ in 0..1_000 {
        let next = client
            .start_call("countdown", arguments.clone(), json!(1))
            .await
            .unwrap();
        if next.is_stream() {
            return;
        }
    }
    panic!("no countdown ended when its stream was closed");
}

#[tokio::test]
async fn listener_gets_list_change_and_closing_result() {
    let (server, client) = start().await;
    let mut stream = client
        .listen(json!({"toolsListChanged": true, "promptsListChanged": true}))
        .await
        .unwrap();
    let mut deaf = client.listen(json!({})).await.unwrap();
    let opening = stream.next_message().await.unwrap().unwrap();
    assert_eq!(
        opening["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        opening["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let id = opening["params"]["_meta"][meta::SUBSCRIPTION_ID].clone();
    assert!(id.is_i64());
    server.reveal();
    let told = stream.next_message().await.unwrap().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"][meta::SUBSCRIPTION_ID], id);
    let tools = client.list_tools().await.unwrap();
    assert_eq!(
        tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(),
        ["calculate", "coin_flip", "countdown", "now"]
    );
    assert!(
        ["heads", "tails"].contains(&client.call("coin_flip", json!({})).await.unwrap().text())
    );
    server.shutdown().await;
    for stream in [&mut stream, &mut deaf] {
        let mut last = Value::Null;
        while let Some(message) = stream.next_message().await.unwrap() {
            last = message;
        }
        assert_eq!(last["result"]["resultType"], "complete");
        assert_eq!(last["result"]["_meta"][meta::SUBSCRIPTION_ID], last["id"]);
    }
}

#[tokio::test]
async fn dropping_the_server_ends_it_at_once() {
    let (server, client) = start().await;
    let mut stream = client
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    assert!(stream.next_message().await.unwrap().is_some());
    drop(server);
    assert!(stream.next_message().await.is_err());
}
