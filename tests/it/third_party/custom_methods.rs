//! A server's own method, unknown to every revision: servers on the TypeScript SDK answer it
//! through weir as they answer it directly.

use serde_json::{Value, json};
use weir_testkit::RawClient;
use weir_wire::Revision;

use super::sdk_questions::over;
use crate::harness::{ForeignServer, Weir, peers_are_enabled};

async fn client(url: &str, revision: Revision) -> RawClient {
    let client = RawClient::new(url);
    if revision.is_modern() {
        client.modern()
    } else {
        client.legacy(revision).initialize().await.unwrap()
    }
}

/// Returns a client's answers to these requests, without the members of one hop.
async fn answers(url: &str, revision: Revision) -> Vec<Value> {
    let client = client(url, revision).await;
    let asked = [
        ("zoo/census", json!({ "area": "ponds" })),
        (
            "zoo/census",
            json!({ "area": "ponds", "keepers": true, "_meta": { "zoo/why": "taxes" } }),
        ),
        ("zoo/census", json!({ "area": "cellar" })),
        ("zoo/census", json!({ "area": 5 })),
        ("zoo/closed", json!({})),
    ];
    let mut all = Vec::new();
    for (method, params) in asked {
        let answer = client.ask(method, params).await.unwrap();
        let mut message = answer.last().clone();
        message.as_object_mut().unwrap().remove("id");
        if let Some(result) = message.get_mut("result").and_then(Value::as_object_mut) {
            result.remove("_meta");
        }
        all.push(json!({ "status": answer.status.as_u16(), "message": message }));
    }
    all
}

async fn alike(server: ForeignServer, revisions: &[Revision]) {
    if !peers_are_enabled() {
        return;
    }
    let (_running, direct) = server.over_http();
    let weir = Weir::with_upstreams(json!({ "peer": { "url": direct } }));
    for &revision in revisions {
        let expected = answers(&direct, revision).await;
        assert_eq!(
            expected[0]["message"]["result"]["animals"], 12,
            "{server:?} {revision:?}: {expected:?}"
        );
        assert_eq!(
            expected[2]["message"]["error"]["code"], 4711,
            "{server:?} {revision:?}: {expected:?}"
        );
        assert_eq!(
            answers(&weir.url("/mcp/peer"), revision).await,
            expected,
            "{server:?} {revision:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_sdks_server_answers_a_method_of_its_own_through_weir_as_directly() {
    alike(
        ForeignServer::TypeScript1,
        &[Revision::NEWEST_LEGACY, Revision::V2025_06_18],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_sdks_server_of_both_eras_answers_a_method_of_its_own_through_weir_as_directly()
 {
    alike(
        ForeignServer::DualTypeScript,
        &[Revision::MODERN, Revision::NEWEST_LEGACY],
    )
    .await;
}

/// A client of another era than the server, so that it could not send the request directly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_client_asks_a_legacy_server_for_a_method_of_its_own() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over(ForeignServer::TypeScript1);
    let answers = answers(&weir.url("/mcp/peer"), Revision::MODERN).await;
    let result = &answers[1]["message"]["result"];
    assert_eq!(
        (&result["animals"], &result["resultType"]),
        (&json!(13), &json!("complete")),
        "{answers:?}"
    );
    assert_eq!(result["inSession"], true, "{answers:?}");
    assert_eq!(
        (
            &answers[2]["message"]["error"]["code"],
            &answers[4]["status"]
        ),
        (&json!(4711), &json!(404))
    );
}
