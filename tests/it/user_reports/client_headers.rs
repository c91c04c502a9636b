//! The parts of a client's request that reach a server: none of its headers, and all bytes of its
//! arguments.

use serde_json::json;
use weir_testkit::RawClient;
use weir_wire::Revision;

use super::{BOTH, both_eras, mock_server, weir_over};
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

// Proves B04, B06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_texts_and_keys_in_other_case_are_forwarded_unchanged() {
    // The schema names no key `Name`.
    let exact = r#""mark":-0,"big":12345678901234567890123,"exp":1E+300,"Name":"x","t":"\u0041\/\ud83e\udd80""#;
    for (era, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = RawClient::new(&weir.url("/mcp")).modern();
        let (headers, message) = client.envelope(
            "tools/call",
            json!({ "name": "one__tool_0000", "arguments": { "mark": 1 } }),
        );
        let body = message.to_string().replacen(r#""mark":1"#, exact, 1);
        let sent = client
            .send(http::Method::POST, headers, body)
            .await
            .unwrap();
        let answer = sent.finish().await.unwrap();
        assert!(answer.result().is_object(), "{}", answer.last());
        let received = upstream.requests();
        let is_forwarded = received
            .iter()
            .any(|request| String::from_utf8_lossy(&request.body).contains(exact));
        assert!(is_forwarded, "{era:?}: {received:?}");
    }
}

// Proves R013.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_serves_the_same() {
    let upstream = mock_server(Revision::NEWEST_LEGACY).tools(3).start().await;
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
