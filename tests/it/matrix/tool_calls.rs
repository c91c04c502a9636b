//! Calls and their results.

use serde_json::{Value, json};
use weir_testkit::ClientAnswer;

use super::pairing::{ScenarioPairing, content, failed};
use super::support_report::FeatureSupport;

/// Returns the result without the members that weir adds for its own revision.
fn bare(answer: &ClientAnswer) -> Value {
    let mut result = answer.result().clone();
    let members = result.as_object_mut().unwrap();
    members.remove("resultType");
    if let Some(meta) = members.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.remove(weir_wire::meta::SERVER_INFO);
    }
    if members.get("_meta").is_some_and(|meta| *meta == json!({})) {
        members.remove("_meta");
    }
    result
}

/// Returns the result with the URIs that an aggregating endpoint shows.
fn renamed(mut result: Value) -> Value {
    for block in result["content"].as_array_mut().unwrap() {
        for at in ["/uri", "/resource/uri"] {
            if let Some(uri) = block.pointer_mut(at) {
                *uri = json!(format!("shop+{}", uri.as_str().unwrap()));
            }
        }
    }
    result
}

// Proves R128.
pub async fn results_of_every_type_pass_intact(world: &ScenarioPairing) -> FeatureSupport {
    let client = world.client().await;
    let arguments = json!({ "text": "\u{1F980}\n", "n": 9_007_199_254_740_993_i64, "none": null, "deep": [[{}]] });
    let echoed = client.call("shop__tool_0000", arguments.clone()).await;
    assert_eq!(echoed.status, 200);
    assert_eq!(
        serde_json::from_str::<Value>(echoed.text()).unwrap(),
        arguments
    );
    if world.is_structured() {
        assert_eq!(echoed.result()["structuredContent"], arguments);
    }
    let by_its_own_name = client.call("tool_0000", json!({ "x": 1 })).await;
    assert_eq!(
        by_its_own_name.text(),
        r#"{"x":1}"#,
        "a native name that one tool has"
    );

    let meta = json!({ "com.example/from-client": { "kept": [1, null] } });
    let params = json!({ "name": "shop__content", "arguments": {}, "_meta": meta });
    let answer = client.ask("tools/call", params).await;
    assert_eq!(
        bare(&answer),
        renamed(content(world.client.min(world.upstream)))
    );
    let seen = world.mock_server.requests_of("tools/call").pop().unwrap();
    assert_eq!(seen.tool(), Some("content"), "the upstream's own name");
    assert_eq!(
        seen.meta()["com.example/from-client"],
        meta["com.example/from-client"]
    );
    assert_eq!(world.mock_server.executions("content"), 1);
    FeatureSupport::Carried
}

// Proves R129, R130.
pub async fn array_result_is_text_for_revisions_without_structured_arrays(
    world: &ScenarioPairing,
) -> FeatureSupport {
    if !world.upstream.is_modern() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.direct().await;
    let (tools, _) = client.list_tool_pages().await;
    let shown = tools.iter().find(|tool| tool["name"] == "listing").unwrap();
    assert_eq!(
        shown.get("outputSchema").is_some(),
        world.client.is_modern(),
        "R130: {shown}"
    );
    let called = client.call("listing", json!({})).await;
    if world.client.is_modern() {
        assert_eq!(
            called.result()["structuredContent"],
            json!([1, 2]),
            "{}",
            called.last()
        );
    } else {
        assert!(
            called.result().get("structuredContent").is_none(),
            "R129: {}",
            called.last()
        );
        assert_eq!(
            serde_json::from_str::<Value>(called.text()).unwrap(),
            json!([1, 2]),
            "{}",
            called.last()
        );
    }
    FeatureSupport::Carried
}

// Proves R123.
pub async fn unknown_tool_is_refused_before_any_upstream(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let before = world.mock_server.requests_of("tools/call").len();
    for (client, name) in [
        (world.client().await, "shop__nothing"),
        (world.direct().await, "nothing"),
    ] {
        let refused = client.call(name, json!({})).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, -32602),
            "{:?}",
            refused.last()
        );
    }
    assert_eq!(world.mock_server.requests_of("tools/call").len(), before);
    FeatureSupport::Carried
}

// Proves R128.
pub async fn errors_of_tools_and_of_servers_pass_unchanged(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let client = world.client().await;
    let of_tool = client.call("shop__fails", json!({})).await;
    assert_eq!(bare(&of_tool), failed());
    let of_server = client.call("shop__error", json!({})).await;
    assert_eq!(of_server.status, 200);
    assert_eq!(
        (of_server.code(), of_server.error()["message"].as_str()),
        (4242, Some("sold out"))
    );
    assert_eq!(of_server.error()["data"]["left"], 0, "{}", of_server.last());
    assert_eq!(of_server.error()["data"]["big"], 9_007_199_254_740_993_i64);
    assert_eq!(
        (
            world.mock_server.executions("fails"),
            world.mock_server.executions("error")
        ),
        (1, 1)
    );
    FeatureSupport::Carried
}

// Proves B24.
pub async fn arguments_against_the_schema_never_reach_the_tool(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let client = world.client().await;
    for arguments in [json!({}), json!({ "n": "three" }), json!({ "n": 1.5 })] {
        let refused = client.call("shop__strict", arguments).await;
        assert_eq!(refused.status, 200);
        if world.client.has_tool_error_for_bad_arguments() {
            assert_eq!(refused.result()["isError"], true, "{}", refused.last());
            assert!(
                refused.text().contains('n'),
                "says which: {}",
                refused.text()
            );
        } else {
            assert_eq!(refused.code(), -32602, "{}", refused.last());
        }
    }
    assert_eq!(world.mock_server.executions("strict"), 0);
    let taken = client.call("shop__strict", json!({ "n": 3 })).await;
    assert_eq!(
        (taken.text(), world.mock_server.executions("strict")),
        (r#"{"n":3}"#, 1)
    );
    FeatureSupport::Carried
}

// Proves R028, B14.
pub async fn an_unknown_method_is_refused(world: &ScenarioPairing) -> FeatureSupport {
    let client = world.client().await;
    let refused = client.ask("shop/sweep", json!({})).await;
    let status = if world.client.is_modern() { 404 } else { 200 };
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (status, -32601),
        "{}",
        refused.last()
    );
    if !world.client.is_modern() {
        // The session lives on.
        assert_eq!(client.ask("ping", json!({})).await.result(), &json!({}));
    }
    FeatureSupport::Carried
}

// Proves R032, B05.
pub async fn batches_belong_to_one_revision(world: &ScenarioPairing) -> FeatureSupport {
    let client = world.client().await;
    let raw = client.raw();
    let (headers, call) = raw.envelope(
        "tools/call",
        json!({ "name": "shop__tool_0000", "arguments": { "b": 1 } }),
    );
    let (_, ping) = raw.envelope("ping", Value::Null);
    let (_, unknown) = raw.envelope("tools/call", json!({ "name": "shop__nothing" }));
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let batch = json!([call, ping, note, unknown]).to_string();
    let answer = raw
        .send(http::Method::POST, headers, batch)
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    if !world.client.has_batches() {
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, -32600),
            "{}",
            answer.last()
        );
        return FeatureSupport::Refused;
    }
    let by_id = |id: &Value| {
        answer
            .messages
            .iter()
            .find(|message| message["id"] == *id)
            .unwrap()
    };
    assert_eq!(answer.messages.len(), 3, "{:?}", answer.messages);
    assert_eq!(
        by_id(&call["id"])["result"]["content"][0]["text"],
        r#"{"b":1}"#
    );
    assert_eq!(by_id(&ping["id"])["result"], json!({}));
    assert_eq!(by_id(&unknown["id"])["error"]["code"], -32602);
    FeatureSupport::Carried
}
