//! Calls that do not end by themselves: deadlines, cancels, lost connections.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_wire::meta;

use super::pairing::ScenarioPairing;
use super::support_report::FeatureSupport;
use crate::harness::CheckedClient;

// Proves R143.
pub async fn progress_extends_the_deadline_and_silence_does_not(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let client = CheckedClient::open(&world.weir.url("/hasty"), world.client).await;
    // Each wait is shorter than the deadline, and all of them together are longer.
    let (token, arguments) = (json!("p"), json!({ "n": 1 }));
    let patient = client.call_with_token("patient", arguments.clone(), &token);
    let (done, late) = tokio::join!(patient, client.call("silent", json!({})));
    assert_eq!(
        serde_json::from_str::<Value>(done.text()).unwrap(),
        arguments
    );
    assert_eq!(done.messages.len(), 6, "{:?}", done.messages);
    assert_eq!(
        (late.status.as_u16(), &late.result()["isError"]),
        (200, &Value::Bool(true)),
        "{}",
        late.last()
    );
    let error = &late.result()["_meta"][meta::WEIR_ERROR];
    assert_eq!(error["code"], 1001, "{}", late.last());
    assert_eq!(
        (error["upstream"].as_str(), error["requestId"].is_string()),
        (Some("hasty"), true),
        "{error}"
    );
    wait_for_cancelled_calls(&world.mock_server, "silent", 1).await;
    FeatureSupport::Carried
}

/// Waits until weir has cancelled this many calls of a tool, by the means of the upstream's
/// revision.
async fn wait_for_cancelled_calls(mock_server: &MockServer, tool: &str, calls: usize) {
    let told = |mock_server: &MockServer| {
        mock_server.counts(tool).abandoned + mock_server.counts(tool).cancelled
    };
    mock_server
        .wait_until(&format!("{calls} of {tool} were given up"), |mock_server| {
            told(mock_server) == calls
        })
        .await;
}

// Proves R210, R211, R212, R213, R214.
pub async fn a_cancelled_call_is_cancelled_upstream_and_no_other(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let client = world.direct().await;
    let (mock_server, gate) = (&world.mock_server, &world.gate);
    let other = world.direct().await;
    let mut kept = other
        .start_call("gated", json!({ "kept": true }), Some(&json!(1)))
        .await;
    assert_eq!(
        kept.next().await.unwrap()["method"],
        "notifications/progress"
    );
    let mut call = client.start_call("stuck", json!({}), Some(&json!(1))).await;
    assert_eq!(
        call.next().await.unwrap()["method"],
        "notifications/progress"
    );
    let id = call.id.clone();
    if let Some(call) = client.cancel(call).await {
        assert_eq!(
            call.read_rest().await,
            Vec::<Value>::new(),
            "R211: nothing follows a cancel"
        );
    }
    wait_for_cancelled_calls(mock_server, "stuck", 1).await;
    if !world.upstream.is_modern() {
        let call = mock_server
            .requests_of("tools/call")
            .into_iter()
            .find(|call| call.tool() == Some("stuck"))
            .unwrap();
        let named = |mock_server: &MockServer| {
            let cancels = mock_server
                .requests_of("notifications/cancelled")
                .into_iter();
            // The upstream's own id, in the call's own session.
            cancels
                .filter(|cancel| cancel.message["params"]["requestId"] == call.message["id"])
                .any(|cancel| cancel.session() == call.session())
        };
        mock_server.wait_until("the cancel", named).await;
    }
    gate.admit(1);
    let rest = kept.read_rest().await;
    assert_eq!(
        rest.last().unwrap()["result"]["content"][0]["text"],
        r#"{"kept":true}"#,
        "R214: the other goes on"
    );
    if !world.client.is_modern() {
        // R213: an id that is not in flight any more.
        let again = client
            .raw()
            .notify("notifications/cancelled", json!({ "requestId": id }))
            .await
            .unwrap();
        assert_eq!(again.status, 202);
    }
    assert!(
        client
            .call("tool_0001", json!({}))
            .await
            .result()
            .is_object()
    );
    FeatureSupport::Carried
}

// Proves R091.
pub async fn a_lost_connection_cancels_a_modern_call_alone(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let (mock_server, gate) = (&world.mock_server, &world.gate);
    let client = world.direct().await;
    let before = mock_server.counts("gated");
    let mut call = client.start_call("gated", json!({}), Some(&json!(1))).await;
    assert_eq!(
        call.next().await.unwrap()["method"],
        "notifications/progress"
    );
    drop(call);
    if world.client.is_modern() {
        mock_server
            .wait_until("the call was given up", |mock_server| {
                let now = mock_server.counts("gated");
                now.abandoned + now.cancelled == before.abandoned + before.cancelled + 1
            })
            .await;
        return FeatureSupport::Carried;
    }
    // R091: the connection is lost, the call is not. A later call completes before the gate opens.
    assert!(
        client
            .call("tool_0001", json!({}))
            .await
            .result()
            .is_object()
    );
    gate.admit(1);
    mock_server
        .wait_until("the call was done", |mock_server| {
            mock_server.counts("gated").completed == before.completed + 1
        })
        .await;
    let now = mock_server.counts("gated");
    assert_eq!(
        (now.started, now.abandoned, now.cancelled),
        (before.started + 1, before.abandoned, before.cancelled)
    );
    FeatureSupport::Carried
}
