//! Legacy handshakes and pings (R059 to R061, R098, R104), and the members that a legacy session
//! may receive (R131).

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::WeirWithUpstream;
use super::request_draft::assert_refused;
use super::weir_with_upstream::{usual_tools, within_timeout};

fn hello(version: &Value) -> Value {
    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "legacy", "version": "1" } })
}

// Proves R059.
#[tokio::test(flavor = "multi_thread")]
async fn a_supported_version_is_echoed() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let answer = stage
            .bare_client()
            .ask("initialize", hello(&json!(revision.as_str())))
            .await
            .unwrap();
        assert_eq!(answer.status, 200);
        let result = answer.result();
        assert_eq!(result["protocolVersion"], revision.as_str());
        assert_eq!(result["serverInfo"]["name"], "weir");
        assert!(result["capabilities"]["tools"].is_object());
        for modern in ["resultType", "ttlMs", "cacheScope", "supportedVersions"] {
            assert_eq!(result.get(modern), None, "{revision:?}");
        }
        stage.assert_still_serving(revision.as_str()).await;
    }
}

// Proves R060, R061.
#[tokio::test(flavor = "multi_thread")]
async fn any_other_version_is_countered_by_the_newest_legacy_one() {
    let mut stage = WeirWithUpstream::new().await;
    for version in [
        "1.0.0",
        "2026-07-28",
        "2099-01-01",
        "2024-11-04",
        "DRAFT",
        "",
        " 2025-06-18",
    ] {
        let answer = stage
            .bare_client()
            .ask("initialize", hello(&json!(version)))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{version:?}: {:?}", answer.body);
        assert_eq!(
            answer.result()["protocolVersion"],
            "2025-11-25",
            "{version:?}"
        );
        assert!(answer.header("mcp-session-id").is_some(), "{version:?}");
        stage.assert_still_serving(version).await;
    }
}

/// A careless `initialize` is accepted, or it fails as an application error: never by a status that
/// a client takes for another protocol.
#[tokio::test(flavor = "multi_thread")]
async fn initialize_with_careless_params_is_answered_on_the_spot() {
    let mut stage = WeirWithUpstream::new().await;
    for params in [
        json!({}),
        json!({ "protocolVersion": 7 }),
        json!({ "protocolVersion": null, "capabilities": null, "clientInfo": null }),
        json!({ "protocolVersion": "2025-11-25" }),
        json!({ "protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": "me" }),
        json!({ "protocolVersion": "2025-11-25", "capabilities": { "sampling": 7, "elicitation": "yes", "x": { "y": [] } } }),
    ] {
        let answer = stage
            .bare_client()
            .ask("initialize", params.clone())
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{params}: {:?}", answer.body);
        match answer.last().get("error") {
            Some(error) => assert_eq!(error["code"], -32602, "{params}: {error}"),
            None => assert!(
                answer.header("mcp-session-id").is_some(),
                "{params}: {:?}",
                answer.headers
            ),
        }
        stage.assert_still_serving(&params.to_string()).await;
    }
}

// Proves R104.
#[tokio::test(flavor = "multi_thread")]
async fn ping_is_answered_by_weir_itself_before_and_in_a_session() {
    let mut stage = WeirWithUpstream::new().await;
    let bare = stage.bare_client();
    let answer = bare.ask("ping", json!({})).await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.result()),
        (200, &json!({})),
        "before initialize"
    );
    for revision in Revision::LEGACY {
        // Also between `initialize` and `notifications/initialized`.
        let client = stage.bare_client().legacy(revision);
        let opened = client
            .ask("initialize", hello(&json!(revision.as_str())))
            .await
            .unwrap();
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        for version in [None, Some(revision.as_str())] {
            let mut headers = vec![("mcp-session-id", session.as_str())];
            headers.extend(version.map(|version| ("mcp-protocol-version", version)));
            for params in ["", r#","params":{}"#, r#","params":{"_meta":{"x":1}}"#] {
                let answer = stage
                    .post(
                        &headers,
                        format!(r#"{{"jsonrpc":"2.0","id":"p","method":"ping"{params}}}"#),
                    )
                    .await;
                assert_eq!(answer.status, 200, "{revision:?}: {:?}", answer.body);
                assert_eq!(
                    answer.last(),
                    &json!({ "jsonrpc": "2.0", "id": "p", "result": {} }),
                    "{revision:?}"
                );
            }
        }
        stage.assert_still_serving(revision.as_str()).await;
    }
}

/// From `initialize` on, collects every message that weir sends to the client, until a change after
/// `initialized` arrived.
// Proves R098.
#[tokio::test(flavor = "multi_thread")]
async fn weir_asks_nothing_before_initialized() {
    let mut upstream = usual_tools(MockServer::legacy(Revision::V2025_11_25));
    upstream = upstream.tool(
        "asks",
        MockBehaviour::ask(
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 1 }),
        ),
    );
    let mut stage =
        WeirWithUpstream::with_upstream(upstream, json!({ "change_window": "20ms" })).await;
    let everything = json!({ "sampling": {}, "elicitation": {}, "roots": { "listChanged": true } });
    let mut params = hello(&json!("2025-11-25"));
    params["capabilities"] = everything;
    let opened = stage.bare_client().ask("initialize", params).await.unwrap();
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let client = stage.bare_client().with_header("mcp-session-id", &session);
    let mut listening = client.get_stream().await.unwrap();
    assert_eq!(listening.status, 200);
    let called = within_timeout("the call", client.call("asks", json!({ "a": 1 })))
        .await
        .unwrap();
    client
        .notify("notifications/initialized", json!({}))
        .await
        .unwrap();
    stage.up.set_tools([
        weir_testkit::mock_server::MockTool::new("echo"),
        weir_testkit::mock_server::MockTool::new("new"),
    ]);
    stage.up.notify_list_changed();
    let mut all = called.messages;
    loop {
        let message = within_timeout("the change", listening.next_message())
            .await
            .unwrap()
            .unwrap();
        let is_change = message["method"] == "notifications/tools/list_changed";
        all.push(message);
        if is_change {
            break;
        }
    }
    let asked: Vec<_> = all
        .iter()
        .filter(|message| message.get("method").is_some() && message.get("id").is_some())
        .collect();
    assert!(
        asked.iter().all(|message| message["method"] == "ping"),
        "{asked:?}"
    );
    stage.take_client_requests();
    stage.assert_still_serving("a session").await;
}

// Proves R131.
#[tokio::test(flavor = "multi_thread")]
async fn session_results_have_no_modern_members() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        let mut answers = vec![
            client.ask("tools/list", json!({})).await.unwrap(),
            client.call("echo", json!({})).await.unwrap(),
        ];
        answers.push(client.ask("ping", json!({})).await.unwrap());
        for answer in answers {
            for modern in ["resultType", "ttlMs", "cacheScope"] {
                assert_eq!(
                    answer.result().get(modern),
                    None,
                    "{revision:?}: {}",
                    answer.last()
                );
            }
        }
        assert_eq!(stage.take_client_requests().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_of_newer_revisions_are_unknown_to_older_sessions() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        for method in [
            "tasks/list",
            "tasks/get",
            "tasks/update",
            "server/discover",
            "subscriptions/listen",
        ] {
            let answer = client.ask(method, json!({ "taskId": "x" })).await.unwrap();
            let id = answer.last()["id"].clone();
            assert_refused(method, &answer, 200, -32601, &id);
        }
        stage.assert_still_serving(revision.as_str()).await;
    }
}
