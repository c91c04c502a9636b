//! Headers, types and encodings around a client's message must not reach a server.

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockServer, RawClient};
use weir_wire::Revision;

use super::{BOTH, both_eras, mockup, weir_over};
use crate::harness::{CheckedClient, Weir};

// Proves C20, R219, R250, A19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_header_of_a_client_reaches_a_server() {
    const CANARY: &str = "CANARY-3f1c";
    let names = [
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-forwarded-for",
        "x-forwarded-host",
        "forwarded",
        "x-real-ip",
        "x-user",
        "mcp-init-host",
        "x-api-key",
        "baggage",
    ];
    for (era, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let client = names
                .iter()
                .fold(client, |client, name| client.with_header(name, CANARY));
            assert!(
                client
                    .call("one__tool_0000", json!({}))
                    .await
                    .result()
                    .is_object()
            );
            client.list_tool_names().await;
        }
        for request in upstream.requests() {
            let text = format!("{:?} {:?}", request.headers, request.body);
            assert!(!text.contains(CANARY), "{era:?}: {text}");
        }
        assert!(
            !weir.process.output().contains(CANARY),
            "R219: nor into the log: {}",
            weir.process.output()
        );
    }
}

// Proves R001, R003, A17, A18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_hosts_and_origins_are_refused_before_anything_happens() {
    let upstream = mockup(Revision::MODERN).tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let good = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let raw = |name: &str, value: &str| good.raw().clone().with_header(name, value);
        for (name, value) in [
            ("host", "evil.example"),
            ("host", "127.0.0.1.evil.example"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1.evil.example"),
        ] {
            let post = raw(name, value)
                .call("one__tool_0000", json!({}))
                .await
                .unwrap();
            assert_eq!(post.status, 403, "{name}: {value}");
            assert!(post.header("access-control-allow-origin").is_none());
            assert_eq!(raw(name, value).get_stream().await.unwrap().status, 403);
            assert_eq!(raw(name, value).delete().await.unwrap().status, 403);
        }
        assert_eq!(upstream.total_executions(), 0, "no side effect");
        // R002: its own origin and none at all.
        let own = weir.url("");
        let seen = raw("origin", &own)
            .ask("tools/list", json!({}))
            .await
            .unwrap();
        assert_eq!(seen.status, 200, "{own}");
    }
    assert!(
        upstream.requests_of("tools/call").is_empty(),
        "a refused request touches no upstream"
    );
}

/// A change of a good call: its headers, and its message.
type SpoilMessage = Box<dyn Fn(&mut http::HeaderMap, &mut Value)>;

fn set(name: &'static str, value: &'static str) -> SpoilMessage {
    Box::new(move |headers, _| drop(headers.insert(name, value.parse().unwrap())))
}

fn unset(name: &'static str) -> SpoilMessage {
    Box::new(move |headers, _| drop(headers.remove(name)))
}

fn meta(key: &'static str, value: Value) -> SpoilMessage {
    Box::new(move |_, message| message["params"]["_meta"][key] = value.clone())
}

fn without(key: &'static str) -> SpoilMessage {
    Box::new(move |_, message| {
        drop(
            message["params"]["_meta"]
                .as_object_mut()
                .unwrap()
                .remove(key),
        );
    })
}

/// Returns changes that weir refuses: the requirement, the change, and the code of the error.
fn refused_spoils() -> Vec<(&'static str, SpoilMessage, i64)> {
    let version = weir_wire::meta::PROTOCOL_VERSION;
    vec![
        ("R009", unset("mcp-protocol-version"), -32020),
        ("R010", meta(version, json!("v999")), -32020),
        ("R011", unset("mcp-method"), -32020),
        ("R012", set("mcp-method", "tools/list"), -32020),
        ("R014", set("mcp-method", "TOOLS/CALL"), -32020),
        ("R016", unset("mcp-name"), -32020),
        ("R017", set("mcp-name", "one__tool_0001"), -32020),
        ("R019", set("mcp-name", "=?base64?SGVsbG8?="), -32020),
        ("R019", set("mcp-name", "=?base64?SGVs!!!?="), -32020),
        ("R026", without(version), -32602),
        (
            "R026",
            without(weir_wire::meta::CLIENT_CAPABILITIES),
            -32602,
        ),
        (
            "R054",
            Box::new(move |headers, message| {
                headers.insert("mcp-protocol-version", "v999".parse().unwrap());
                message["params"]["_meta"][version] = json!("v999");
            }),
            -32022,
        ),
    ]
}

// Proves R009, R017, R054, R055, B09, B10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_and_body_must_agree() {
    let upstream = MockServer::modern().tools(2).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = RawClient::new(&weir.url("/mcp")).modern();
    let send = async |spoil: &dyn Fn(&mut http::HeaderMap, &mut Value)| -> ClientAnswer {
        let params = json!({ "name": "one__tool_0000", "arguments": {} });
        let (mut headers, mut message) = client.envelope("tools/call", params);
        spoil(&mut headers, &mut message);
        client
            .send(http::Method::POST, headers, message.to_string())
            .await
            .unwrap()
            .finish()
            .await
            .unwrap()
    };
    for (name, spoil, code) in refused_spoils() {
        let answer = send(&*spoil).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, code),
            "{name}: {}",
            answer.last()
        );
        assert!(answer.last()["id"].is_i64(), "R034: {}", answer.last());
        if code == -32022 {
            assert!(
                answer.error()["data"]["supported"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("2026-07-28")),
                "R055"
            );
            assert_eq!(answer.error()["data"]["requested"], "v999");
        }
    }
    assert_eq!(
        upstream.total_executions(),
        0,
        "bad input touches no upstream"
    );
    let fine: Vec<(&str, SpoilMessage)> = vec![
        ("R015", set("mcp-name", "one__tool_0000  ")),
        ("R018", set("mcp-name", "=?base64?b25lX190b29sXzAwMDA=?=")),
        ("R025", set("mcp-param-foo", "bar")),
        ("R027", without(weir_wire::meta::CLIENT_INFO)),
    ];
    for (name, change) in fine {
        let answer = send(&*change).await;
        assert!(answer.result().is_object(), "{name}: {}", answer.last());
    }
}

// Proves A05, A06, A21, R047.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_bodies_and_content_types_are_refused() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let url = weir.url("/mcp");
    let raw = RawClient::new(&url);
    let json_type = ("content-type", "application/json");
    let accept = ("accept", "application/json, text/event-stream");
    type RefusedBody<'a> = (&'a [(&'a str, &'a str)], &'a str, u16);
    let rows: [RefusedBody<'_>; 5] = [
        (&[("content-type", "text/plain"), accept], "{}", 415),
        (
            &[json_type, accept, ("content-encoding", "gzip")],
            "{}",
            415,
        ),
        (&[json_type, ("accept", "text/html")], "{}", 406),
        (&[json_type, accept], "{not json", 400),
        (&[json_type, accept], "\u{feff}{}", 400),
    ];
    for (headers, body, status) in rows {
        let answer = raw.post_raw(headers, body.to_owned()).await.unwrap();
        assert_eq!(answer.status.as_u16(), status, "{headers:?} {body}");
    }
    let put = raw
        .send(http::Method::PUT, http::HeaderMap::new(), "{}")
        .await
        .unwrap();
    assert_eq!(
        (put.status.as_u16(), put.headers.contains_key("allow")),
        (405, true)
    );
    let nowhere = RawClient::new(&weir.url("/nowhere"))
        .modern()
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!(nowhere.status, 404);
    let big = json!({ "pad": "x".repeat(2 << 20) }).to_string();
    let answer = raw.post_raw(&[json_type, accept], big).await.unwrap();
    assert_eq!(answer.status, 413);
    assert_eq!(upstream.total_executions(), 0);
    assert!(
        CheckedClient::open(&url, Revision::MODERN)
            .await
            .call("one__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
}

// Proves B03, B04, B06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_keys_are_refused_and_accepted_requests_forwarded_unchanged() {
    for (_, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = RawClient::new(&weir.url("/mcp")).modern();
        let post = async |change: &dyn Fn(String) -> String| {
            let (headers, message) = client.envelope(
                "tools/call",
                json!({ "name": "one__tool_0000", "arguments": { "mark": 1 } }),
            );
            let body = change(message.to_string());
            client
                .send(http::Method::POST, headers, body)
                .await
                .unwrap()
                .finish()
                .await
                .unwrap()
        };
        for (what, twice) in [
            (
                r#""method":"tools/call""#,
                r#""method":"tools/list","method":"tools/call""#,
            ),
            (
                r#""name":"one__tool_0000""#,
                r#""name":"other","name":"one__tool_0000""#,
            ),
            (r#""_meta":{"#, r#""_meta":{},"_meta":{"#),
            (r#""jsonrpc":"2.0""#, r#""jsonrpc":"2.0","jsonrpc":"2.0""#),
        ] {
            let answer = post(&|body| {
                assert!(body.contains(what), "{what} in {body}");
                body.replacen(what, twice, 1)
            })
            .await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, -32600),
                "B03: {twice}"
            );
        }
        let deep = format!(r#""mark":{}1{}"#, "[".repeat(100), "]".repeat(100));
        let answer = post(&|body| body.replacen(r#""mark":1"#, &deep, 1)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, -32600),
            "B01"
        );
        assert_eq!(upstream.total_executions(), 0);
        // B06: numbers and texts go through unchanged. B04: a key in other case that the schema
        // does not name is another key.
        let exact = r#""mark":-0,"big":12345678901234567890123,"exp":1E+300,"Name":"x","t":"\u0041\/\ud83e\udd80""#;
        let answer = post(&|body| body.replacen(r#""mark":1"#, exact, 1)).await;
        assert!(answer.result().is_object(), "{}", answer.last());
        let seen = upstream.requests_of("tools/call").pop();
        let all: Vec<_> = upstream
            .requests()
            .into_iter()
            .map(|request| request.body)
            .collect();
        let forwarded = all
            .iter()
            .any(|body| String::from_utf8_lossy(body).contains(exact));
        assert!(forwarded, "{seen:?}");
    }
}

// Proves R013.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_serves_the_same() {
    let upstream = mockup(Revision::NEWEST_LEGACY).tools(3).start().await;
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "endpoints": { "/mcp": { "upstreams": ["one"], "page": { "items": 2 } } },
    }));
    let raw = RawClient::new(&weir.url("/mcp")).with_http2();
    assert_eq!(raw.clone().modern().list_tools().await.unwrap().len(), 3);
    let modern = raw.clone().modern();
    assert_eq!(
        modern
            .call("one__tool_0000", json!({ "h": 2 }))
            .await
            .unwrap()
            .text(),
        r#"{"h":2}"#
    );
    let legacy = raw
        .legacy(Revision::V2025_06_18)
        .initialize()
        .await
        .unwrap();
    assert_eq!(
        legacy
            .call("one__tool_0001", json!({ "h": 2 }))
            .await
            .unwrap()
            .text(),
        r#"{"h":2}"#
    );
    let mut listen = modern
        .listen(json!({ "toolsListChanged": true }))
        .await
        .unwrap();
    let first = listen.next_message().await.unwrap().unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
}
