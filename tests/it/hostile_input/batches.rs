//! Batches, a feature of 2025-03-26 alone (B05, R099 to R102).

use serde_json::{Value, json};
use weir_testkit::mock_server::CallGate;
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::WeirWithUpstream;
use super::request_draft::assert_refused;
use super::weir_with_upstream::{usual_tools, within_timeout};

const REVISION: Revision = Revision::V2025_03_26;

async fn send(stage: &WeirWithUpstream, client: &RawClient, items: &[Value]) -> ClientAnswer {
    within_timeout(
        "the batch's answer",
        stage.post_as(client, &[], json!(items).to_string()),
    )
    .await
}

fn ping(id: impl Into<Value>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "ping" })
}

fn call(id: impl Into<Value>, tool: &str) -> Value {
    let id = id.into();
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": { "of": id } } })
}

fn note() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" })
}

/// Returns the response with this id, of which there is exactly one.
fn response_for<'a>(answer: &'a ClientAnswer, id: &Value) -> &'a Value {
    let all: Vec<_> = answer
        .messages
        .iter()
        .filter(|message| message["id"] == *id)
        .collect();
    assert_eq!(all.len(), 1, "{id}: {:?}", answer.body);
    all[0]
}

// Proves R099.
#[tokio::test(flavor = "multi_thread")]
async fn requests_notifications_and_responses_come_mixed() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(REVISION).await;
    let response = json!({ "jsonrpc": "2.0", "id": 77, "result": {} });
    let items = [
        ping(1),
        note(),
        call("one", "echo"),
        response,
        call(2, "echo"),
        call(3, "nobody"),
        note(),
    ];
    let answer = send(&stage, &client, &items).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let whole: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        whole.as_array().map(Vec::len),
        Some(4),
        "one array: {whole}"
    );
    assert_eq!(response_for(&answer, &json!(1))["result"], json!({}));
    for id in [json!("one"), json!(2)] {
        assert_eq!(
            response_for(&answer, &id)["result"]["content"][0]["text"],
            json!({ "of": id }).to_string()
        );
    }
    assert_eq!(response_for(&answer, &json!(3))["error"]["code"], -32602);
    assert_eq!(stage.take_client_requests().len(), 2);
    stage.assert_still_serving("a mixed batch").await;
}

// Proves R100.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_requests_is_202_and_empty() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(REVISION).await;
    let response = json!({ "jsonrpc": "2.0", "id": 77, "result": {} });
    for items in [
        vec![note()],
        vec![note(), note()],
        vec![response.clone()],
        vec![response, note()],
    ] {
        let answer = send(&stage, &client, &items).await;
        assert_eq!(
            (answer.status.as_u16(), answer.body.len()),
            (202, 0),
            "{items:?}: {:?}",
            answer.body
        );
        stage.assert_still_serving("a batch without requests").await;
    }
}

// Proves R101.
#[tokio::test(flavor = "multi_thread")]
async fn initialize_in_a_batch_is_32600_and_opens_nothing() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(REVISION).await;
    let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let initialize =
        json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params });
    for items in [vec![initialize.clone()], vec![ping(1), initialize.clone()]] {
        let answer = send(&stage, &client, &items).await;
        // The error is of the whole batch, or of this member of it.
        let codes: Vec<_> = answer
            .messages
            .iter()
            .filter_map(|message| message["error"]["code"].as_i64())
            .collect();
        assert_eq!(codes, [-32600], "{:?}", answer.body);
        assert!(
            answer
                .messages
                .iter()
                .all(|message| message["result"].get("protocolVersion").is_none()),
            "{:?}",
            answer.body
        );
        assert_eq!(answer.header("mcp-session-id"), None);
    }
    // Without a session, it does not open one either.
    let answer = stage.post(&[], json!([initialize]).to_string()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("mcp-session-id")),
        (400, None),
        "{:?}",
        answer.body
    );
    stage.assert_still_serving("initialize in a batch").await;
}

// Proves B05, R102.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_items_are_served_and_fifty_one_are_not() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(REVISION).await;
    let calls = |tool, count: i64| (0..count).map(|id| call(id, tool)).collect::<Vec<_>>();
    let answer = send(&stage, &client, &calls("echo", 50)).await;
    assert_eq!((answer.status.as_u16(), answer.messages.len()), (200, 50));
    assert!((0..50).all(|id| response_for(&answer, &json!(id)).get("result").is_some()));
    assert_eq!(stage.take_client_requests().len(), 50);
    for count in [51, 100, 5_000] {
        let answer = send(&stage, &client, &calls("smuggled", count)).await;
        assert_refused("too many", &answer, 400, -32600, &Value::Null);
        stage.assert_still_serving("too many").await;
    }
}

// Proves B05.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_item_spoils_only_itself() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(REVISION).await;
    for (name, bad, id) in [
        ("a number", json!(1), Value::Null),
        ("null", Value::Null, Value::Null),
        ("an array", json!([ping(9)]), Value::Null),
        ("an empty object", json!({}), Value::Null),
        ("no jsonrpc", json!({ "id": 9, "method": "ping" }), json!(9)),
        (
            "a null id",
            json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }),
            Value::Null,
        ),
        (
            "params that are a list",
            json!({ "jsonrpc": "2.0", "id": 9, "method": "ping", "params": [] }),
            json!(9),
        ),
    ] {
        let answer = send(&stage, &client, &[call("good", "echo"), bad, ping("too")]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.messages.len()),
            (200, 3),
            "{name}: {:?}",
            answer.body
        );
        assert!(
            response_for(&answer, &json!("good"))
                .get("result")
                .is_some(),
            "{name}"
        );
        assert!(
            response_for(&answer, &json!("too")).get("result").is_some(),
            "{name}"
        );
        assert_eq!(
            response_for(&answer, &id)["error"]["code"],
            -32600,
            "{name}"
        );
        assert_eq!(stage.take_client_requests().len(), 1, "{name}");
    }
    // A key that occurs twice in one item is that item's fault.
    let text = format!(
        r#"[{},{{"jsonrpc":"2.0","id":9,"method":"ping","method":"tools/list"}}]"#,
        ping("good")
    );
    let answer = stage.post_as(&client, &[], text).await;
    assert_eq!(
        response_for(&answer, &json!("good"))["result"],
        json!({}),
        "{:?}",
        answer.body
    );
    assert_eq!(
        response_for(&answer, &json!(9))["error"]["code"],
        -32600,
        "{:?}",
        answer.body
    );
    stage.assert_still_serving("bad items").await;
}

// Proves B05.
#[tokio::test(flavor = "multi_thread")]
async fn batch_items_run_concurrently() {
    let gate = CallGate::new();
    let upstream = usual_tools(MockServer::modern()).tool("gated", MockBehaviour::gated(&gate));
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    let client = stage.legacy_client(REVISION).await;
    let items: Vec<_> = (0..10).map(|id| call(id, "gated")).collect();
    let sending = send(&stage, &client, &items);
    let watching = async {
        // All ten are in flight before one has ended.
        stage
            .up
            .wait_until("ten calls at once", |up| up.executions("gated") == 10)
            .await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(sending, watching);
    assert_eq!((answer.status.as_u16(), answer.messages.len()), (200, 10));
    assert_eq!(stage.take_client_requests().len(), 10);
    stage.assert_still_serving("ten calls").await;
}
