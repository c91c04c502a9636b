//! Features of the modern revision, and features that it has dropped (R005 to R008, R028 to R030,
//! R051 to R056, B14).

use serde_json::json;
use weir_testkit::ClientAnswer;
use weir_wire::meta;

use super::WeirWithUpstream;
use super::modern_responses::check_schema;
use super::request_draft::assert_refused;

fn is_weir(answer: &ClientAnswer) {
    let server = &answer.result()["_meta"][meta::SERVER_INFO];
    assert_eq!(server["name"], "weir", "r053: {}", answer.last());
    assert!(server["version"].is_string(), "r053: {}", answer.last());
}

// Proves R005, R051, R052, R053.
#[tokio::test(flavor = "multi_thread")]
async fn discover_lists_revisions_and_capabilities() {
    let mut stage = WeirWithUpstream::new().await;
    for client in [stage.modern_client(), stage.modern_client().with_http2()] {
        let answer = client.ask("server/discover", json!({})).await.unwrap();
        assert_eq!(answer.status, 200);
        let result = answer.result();
        assert_eq!(result["resultType"], "complete");
        assert!(
            result["supportedVersions"]
                .as_array()
                .unwrap()
                .contains(&json!("2026-07-28")),
            "{result}"
        );
        assert!(result["capabilities"]["tools"].is_object(), "{result}");
        assert!(result["ttlMs"].as_u64().is_some(), "{result}");
        assert!(
            ["public", "private"].contains(&result["cacheScope"].as_str().unwrap()),
            "{result}"
        );
        assert!(
            result.get("serverInfo").is_none(),
            "it moved into _meta: {result}"
        );
        is_weir(&answer);
        check_schema("server/discover", &answer.messages);
    }
    stage.assert_still_serving("discover").await;
}

// Proves R053, R132.
#[tokio::test(flavor = "multi_thread")]
async fn every_result_is_complete_and_from_weir() {
    let mut stage = WeirWithUpstream::new().await;
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "echo", "arguments": {} })),
    ] {
        let answer = stage.modern_client().ask(method, params).await.unwrap();
        assert_eq!(answer.result()["resultType"], "complete", "{method}");
        is_weir(&answer);
        check_schema(method, &answer.messages);
    }
    assert_eq!(stage.take_client_requests().len(), 1);
}

// Proves R056, R030.
#[tokio::test(flavor = "multi_thread")]
async fn declared_capabilities_work() {
    let mut stage = WeirWithUpstream::new().await;
    let answer = stage
        .modern_client()
        .ask("server/discover", json!({}))
        .await
        .unwrap();
    let capabilities = answer.result()["capabilities"].clone();
    assert_eq!(
        stage
            .modern_client()
            .ask("tools/list", json!({}))
            .await
            .unwrap()
            .status,
        200
    );
    for (capability, methods) in [
        ("prompts", ["prompts/list", "prompts/get"]),
        ("resources", ["resources/list", "resources/read"]),
        ("resources", ["resources/templates/list", "resources/read"]),
        (
            "completions",
            ["completion/complete", "completion/complete"],
        ),
    ] {
        for method in methods {
            let params = json!({ "name": "x", "uri": "x:y", "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "" } });
            let answer = stage.modern_client().ask(method, params).await.unwrap();
            let offered = capabilities.get(capability).is_some();
            let known = !(answer.status == 404 && answer.last()["error"]["code"] == -32601);
            assert_eq!(
                offered, known,
                "{method} with {capabilities}: {} {:?}",
                answer.status, answer.body
            );
        }
        stage.assert_still_serving(capability).await;
    }
    // `listChanged` is offered, so it is honoured.
    assert_eq!(capabilities["tools"]["listChanged"], true);
    let mut listening = stage
        .modern_client()
        .listen(json!({ "toolsListChanged": true }))
        .await
        .unwrap();
    let first = listening.next_message().await.unwrap().unwrap();
    assert_eq!(
        first["params"]["notifications"],
        json!({ "toolsListChanged": true })
    );
}

// Proves B14, R028, R029.
#[tokio::test(flavor = "multi_thread")]
async fn methods_that_are_not_there_are_404_32601() {
    let mut stage = WeirWithUpstream::new().await;
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "",
        " tools/call",
        "TOOLS/LIST",
        "dev.weir/extension",
        "notifications/initialized",
        "gr\u{fc}\u{df}e",
    ] {
        let mut draft = stage.draft_request("tools/list", json!({ "level": "info", "uri": "x:y" }));
        draft.body["id"] = json!("not there");
        draft.body["method"] = json!(method);
        draft.set_header("mcp-method", &weir_wire::header::encode(method));
        let answer = draft.post(&stage).await;
        if method.is_empty() || method.starts_with(' ') || !method.is_ascii() {
            // `Mcp-Method` cannot carry these: the header has another method, or is absent.
            assert!(
                [400, 404].contains(&answer.status.as_u16()),
                "{method:?}: {:?}",
                answer.body
            );
            assert!(
                [-32020, -32601, -32600].contains(&answer.code()),
                "{method:?}: {:?}",
                answer.body
            );
        } else {
            assert_refused(method, &answer, 404, -32601, &json!("not there"));
        }
        stage.assert_still_serving(method).await;
    }
    // On a path with one server, that server refuses methods that no revision knows.
    for method in [
        "unknown/method",
        "tools/call/x",
        "tools",
        "rpc.discover",
        "dev.weir/admin",
        "../tools/list",
    ] {
        let mut draft = stage.draft_request("tools/list", json!({ "level": "info" }));
        draft.body["method"] = json!(method);
        draft.set_header("mcp-method", method);
        let answer = draft.post(&stage).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, -32601),
            "{method}: {:?}",
            answer.body
        );
        let heard = stage.take_client_requests();
        assert_eq!(heard[0].message["method"], method, "{method}");
        stage.assert_still_serving(method).await;
    }
}

// Proves R007, R008.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_event_ids_mean_nothing_to_modern_requests() {
    let mut stage = WeirWithUpstream::new().await;
    for method in ["server/discover", "tools/list", "tools/call"] {
        let mut draft = stage.draft_request(method, json!({ "name": "echo", "arguments": {} }));
        draft.set_header("mcp-session-id", "bogus \u{7e} session");
        draft.set_header("last-event-id", "bogus");
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 200, "{method}: {:?}", answer.body);
        assert_eq!(answer.header("mcp-session-id"), None, "{method}");
    }
    assert_eq!(stage.take_client_requests().len(), 1);
}
