//! Calls of unknown tools, and calls with arguments that do not match the tool's schema (B15, B24).

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_wire::Revision;

use super::WeirWithUpstream;
use super::request_draft::assert_error;
use super::weir_with_upstream::usual_tools;

/// Returns all parts of an answer by which a client could tell two refusals apart, except the name
/// that it sent itself.
fn comparable_refusal(answer: &ClientAnswer, name: &str) -> (u16, Vec<String>, String) {
    let mut headers: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
    headers.sort();
    let mut error = answer.error().clone();
    if let Some(data) = error.get_mut("data").and_then(Value::as_object_mut) {
        data.remove("requestId");
    }
    (
        answer.status.as_u16(),
        headers,
        error.to_string().replace(name, "NAME"),
    )
}

// Proves B15, R111.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_tool_names_are_unknown_and_upstream_ids_distinguish_the_rest() {
    let twin = || {
        MockServer::modern()
            .named("the same name")
            .with(MockTool::new("echo"))
    };
    let one = usual_tools(twin().tool("only_one", MockBehaviour::text("from one")))
        .start()
        .await;
    let two = twin()
        .tool("same", MockBehaviour::text("from two"))
        .start()
        .await;
    let config = json!({
        "upstreams": { "one": { "url": one.url() }, "two": { "url": two.url() }, "up": { "url": one.url() } },
        "endpoints": { "/mcp": { "upstream": "up" }, "/both": { "upstreams": ["one", "two"] } },
    });
    let stage = WeirWithUpstream::with_running_upstream(one, config).await;
    let both = weir_testkit::RawClient::new(&stage.weir.url("/both")).modern();
    let names: Vec<_> = both
        .list_tools()
        .await
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        names.contains(&"one__echo".to_owned()) && names.contains(&"two__echo".to_owned()),
        "{names:?}"
    );
    assert!(
        !names
            .iter()
            .any(|name| name.contains("same name") || name == "echo"),
        "{names:?}"
    );
    // Unprefixed, if exactly one upstream has it.
    assert_eq!(
        both.call("only_one", json!({})).await.unwrap().text(),
        "from one"
    );
    assert_eq!(
        both.call("same", json!({})).await.unwrap().text(),
        "from two"
    );
    let before = (
        stage.up.requests_of("tools/call").len(),
        two.requests_of("tools/call").len(),
    );
    let mut seen = Vec::new();
    for name in [
        "echo",
        "nobody",
        "three__echo",
        "one__nobody",
        "one_echo",
        "ONE__echo",
        "one__",
        "__echo",
        "two__only_one",
    ] {
        let answer = both.call(name, json!({})).await.unwrap();
        let id = answer.last()["id"].clone();
        assert_eq!(answer.status, 200, "{name}: {:?}", answer.body);
        assert_error(name, &answer, -32602, &id);
        seen.push(comparable_refusal(&answer, name));
    }
    // The answer does not reveal if a name is wrong, ambiguous or of a tool that this caller may
    // not see.
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    assert_eq!(
        (
            stage.up.requests_of("tools/call").len(),
            two.requests_of("tools/call").len()
        ),
        before
    );
}

fn strict() -> weir_testkit::mock_server::MockServerBuilder {
    let schema = json!({
        "type": "object",
        "properties": { "count": { "type": "integer", "minimum": 1 }, "name": { "type": "string" } },
        "required": ["count"],
        "additionalProperties": false,
    });
    usual_tools(MockServer::modern()).with(MockTool::new("strict").with("inputSchema", schema))
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_against_the_schema_never_reach_the_upstream() {
    let mut stage = WeirWithUpstream::with_upstream(strict(), json!({})).await;
    let bad = [
        json!({}),
        json!({ "count": "one" }),
        json!({ "count": 0 }),
        json!({ "count": 1.5 }),
        json!({ "count": 1, "extra": true }),
        json!({ "count": null }),
    ];
    for arguments in bad {
        let modern = stage
            .modern_client()
            .call("strict", arguments.clone())
            .await
            .unwrap();
        assert_eq!(
            (modern.status.as_u16(), &modern.result()["isError"]),
            (200, &json!(true)),
            "{arguments}: {:?}",
            modern.body
        );
        for revision in Revision::LEGACY {
            let answer = stage
                .legacy_client(revision)
                .await
                .call("strict", arguments.clone())
                .await
                .unwrap();
            assert_eq!(
                answer.status, 200,
                "{revision:?} {arguments}: {:?}",
                answer.body
            );
            if revision == Revision::V2025_11_25 {
                assert_eq!(
                    answer.result()["isError"],
                    true,
                    "{arguments}: {:?}",
                    answer.body
                );
            } else {
                assert_eq!(
                    answer.code(),
                    -32602,
                    "{revision:?} {arguments}: {:?}",
                    answer.body
                );
            }
        }
        stage.assert_still_serving(&arguments.to_string()).await;
    }
    let good = stage
        .modern_client()
        .call("strict", json!({ "count": 3, "name": "x" }))
        .await
        .unwrap();
    assert_eq!(good.result().get("isError"), None, "{:?}", good.body);
    assert_eq!(stage.take_client_requests().len(), 1);
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn refusal_names_at_most_five_schema_errors() {
    let properties: serde_json::Map<_, _> = (0..50)
        .map(|n| (format!("p{n}"), json!({ "type": "integer" })))
        .collect();
    let upstream = usual_tools(MockServer::modern()).with(MockTool::new("wide").with(
        "inputSchema",
        json!({ "type": "object", "properties": properties }),
    ));
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    let arguments: serde_json::Map<_, _> = (0..50)
        .map(|n| (format!("p{n}"), json!("CANARY-value")))
        .collect();
    let answer = stage
        .modern_client()
        .call("wide", json!(arguments))
        .await
        .unwrap();
    assert_eq!(answer.result()["isError"], true);
    let pointers = answer.text().matches("/p").count();
    assert!((1..=5).contains(&pointers), "{}", answer.text());
    stage.assert_still_serving("fifty wrong arguments").await;
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_no_object_are_32602() {
    let mut stage = WeirWithUpstream::with_upstream(strict(), json!({})).await;
    for tool in ["echo", "strict"] {
        for arguments in [
            json!([]),
            json!("text"),
            json!(7),
            json!(true),
            json!([{ "count": 1 }]),
        ] {
            for client in [
                stage.modern_client(),
                stage.legacy_client(Revision::V2025_06_18).await,
            ] {
                let answer = client.call(tool, arguments.clone()).await.unwrap();
                let id = answer.last()["id"].clone();
                assert_error(&format!("{tool} {arguments}"), &answer, -32602, &id);
            }
            stage.assert_still_serving(&arguments.to_string()).await;
        }
    }
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn absent_arguments_are_an_empty_object() {
    let mut stage = WeirWithUpstream::with_upstream(strict(), json!({})).await;
    for client in [
        stage.modern_client(),
        stage.legacy_client(Revision::V2025_11_25).await,
    ] {
        let answer = client
            .ask("tools/call", json!({ "name": "echo" }))
            .await
            .unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, "{}"),
            "{:?}",
            answer.body
        );
        assert_eq!(stage.take_client_requests().len(), 1);
        let answer = client
            .ask("tools/call", json!({ "name": "strict" }))
            .await
            .unwrap();
        assert_eq!(answer.result()["isError"], true, "{:?}", answer.body);
        stage.assert_still_serving("absent arguments").await;
    }
}
