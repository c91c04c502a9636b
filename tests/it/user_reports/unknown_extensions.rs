//! Extensions that weir does not know, between a modern client and the server of a transparent
//! endpoint.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::{Revision, meta};

use super::weir_over;
use crate::harness::CheckedClient;

const OWN: &str = "com.example/stars";

fn describes_itself() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [Revision::MODERN.as_str()],
        "capabilities": { "tools": {}, "extensions": { OWN: { "most": 5 } } },
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

// Proves R144.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_passes_by_its_identifier_with_its_methods() {
    let upstream = MockServer::modern()
        .with_rule("server/discover", MockBehaviour::result(describes_itself()))
        .with_rule("com.example/give", MockBehaviour::echo())
        .tools(1)
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let declares = json!({ "extensions": { OWN: { "least": 1 } } });
    let client =
        CheckedClient::with_capabilities(&weir.url("/mcp/one"), Revision::MODERN, declares.clone())
            .await;
    let offered = client.ask("server/discover", json!({})).await;
    assert_eq!(
        offered.result()["capabilities"]["extensions"],
        json!({ OWN: { "most": 5 } })
    );
    let params = json!({ "arguments": { "stars": 4 }, "name": "kept", "requestState": "kept", "_meta": { "x/y": 1 } });
    let given = client.ask("com.example/give", params).await;
    assert_eq!(given.text(), r#"{"stars":4}"#, "{}", given.last());
    assert!(given.result()["_meta"].get(meta::SERVER_INFO).is_some());
    let sent = upstream.requests_of("com.example/give").pop().unwrap();
    assert_eq!(sent.header("mcp-method"), Some("com.example/give"));
    let params = &sent.message["params"];
    assert_eq!(
        (
            &params["name"],
            &params["requestState"],
            &params["_meta"]["x/y"]
        ),
        (&json!("kept"), &json!("kept"), &json!(1))
    );
    assert_eq!(sent.meta()[meta::CLIENT_CAPABILITIES], declares);
    // On an endpoint of one server the request of a client that does not declare the extension
    // passes without the capability: the server decides. If several servers are possible, weir
    // refuses.
    let silent = CheckedClient::open(&weir.url("/mcp/one"), Revision::MODERN).await;
    let legacy = CheckedClient::with_capabilities(
        &weir.url("/mcp/one"),
        Revision::V2025_11_25,
        declares.clone(),
    )
    .await;
    for client in [silent, legacy] {
        let given = client
            .ask("com.example/give", json!({ "arguments": {} }))
            .await;
        assert_eq!(given.text(), "{}", "{}", given.last());
        let sent = upstream.requests_of("com.example/give").pop().unwrap();
        assert!(
            sent.meta()[meta::CLIENT_CAPABILITIES]
                .get("extensions")
                .is_none(),
            "{}",
            sent.message
        );
    }
    let merged =
        CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::MODERN, declares).await;
    let refused = merged.ask("com.example/give", json!({})).await;
    assert_eq!(refused.code(), -32601, "{}", refused.last());
    assert_eq!(upstream.requests_of("com.example/give").len(), 3);
}
