//! Legacy clients that never send their session id back.

use serde_json::json;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::BOTH;
use crate::harness::Weir;

fn over(upstream: &MockServer, sessions: &str) -> Weir {
    Weir::with_config(
        json!({ "upstreams": { "one": { "url": upstream.url() } }, "legacy_sessions": sessions }),
    )
}

// Proves R083.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_session_id_requests_are_served_one_by_one_where_the_config_says_so() {
    for revision in BOTH {
        let builder = if revision.is_modern() {
            MockServer::modern()
        } else {
            MockServer::legacy(revision)
        };
        let upstream = builder.tools(2).with_library().start().await;
        let weir = over(&upstream, "optional");
        for client in [Revision::V2025_03_26, Revision::V2025_11_25] {
            let client = RawClient::new(&weir.url("/mcp")).legacy(client);
            let listed = client.ask("tools/list", json!({})).await.unwrap();
            assert_eq!(
                listed.result()["tools"].as_array().map(Vec::len),
                Some(2),
                "{}",
                listed.last()
            );
            for _ in 0..3 {
                assert_eq!(
                    client
                        .call("one__tool_0000", json!({ "a": 1 }))
                        .await
                        .unwrap()
                        .text(),
                    r#"{"a":1}"#
                );
            }
            let read = client
                .ask("resources/read", json!({ "uri": "one+memo:1" }))
                .await
                .unwrap();
            assert_eq!(read.result()["contents"][0]["text"], "of memo:1");
            assert_eq!(
                client.ask("ping", json!({})).await.unwrap().result(),
                &json!({})
            );
            for (method, params) in [
                ("logging/setLevel", json!({ "level": "info" })),
                ("resources/subscribe", json!({ "uri": "one+memo:1" })),
            ] {
                let refused = client.ask(method, params).await.unwrap();
                assert_eq!(
                    (refused.status.as_u16(), refused.code()),
                    (200, -32602),
                    "{method}: {}",
                    refused.last()
                );
            }
            // An expired session differs from a request without a session id.
            let gone = client
                .clone()
                .with_header("mcp-session-id", "AAAAAAAAAAAAAAAAAAAAAA");
            assert_eq!(
                gone.ask("tools/list", json!({})).await.unwrap().status,
                404,
                "R084"
            );
        }
        let calls = upstream.requests_of("tools/call");
        let sessions: std::collections::HashSet<_> =
            calls.iter().map(|call| call.session()).collect();
        assert_eq!(
            (calls.len(), sessions.len()),
            (6, 1),
            "one session upstream serves them all"
        );
    }
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = over(&upstream, "required");
    let client = RawClient::new(&weir.url("/mcp")).legacy(Revision::V2025_11_25);
    assert_eq!(
        client.ask("tools/list", json!({})).await.unwrap().status,
        400,
        "R083"
    );
}
