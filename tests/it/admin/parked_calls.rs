//! Parked calls (those that wait for input of their clients), as operators see and end them.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{OperatorClient, body, config_over};
use crate::harness::{CheckedClient, Weir, wait_until};

/// Makes the call, up to its question; returns the request state for the retry.
async fn ask(client: &CheckedClient) -> Value {
    let asked = client.call("one__ask", json!({})).await.last()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    asked["requestState"].clone()
}

/// Retries the call with an answer.
async fn again(client: &CheckedClient, state: &Value) -> Value {
    let answers = json!({ "input-1": { "action": "accept", "content": { "name": "Ada" } } });
    let params = json!({ "name": "one__ask", "arguments": {}, "requestState": state, "inputResponses": answers });
    client
        .raw()
        .ask("tools/call", params)
        .await
        .unwrap()
        .last()
        .clone()
}

// Proves R183.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_for_its_client_is_shown_and_ended() {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "message": "Who are you?", "requestedSchema": schema });
    let asking = MockBehaviour::ask("elicitation/create", form);
    let one = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("ask", asking)
        .start()
        .await;
    let two = MockServer::modern().start().await;
    let weir = Weir::with_config(config_over(&[("one", &one), ("two", &two)]));
    weir.wait_until_listed("/mcp", &["one__ask"]);
    let ops = OperatorClient::of(&weir);
    let able = json!({ "elicitation": { "form": {} } });
    let client = CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::MODERN, able).await;

    // It is shown, and not affected by it.
    let state = ask(&client).await;
    let seen = ops.get_json("/admin/calls").await;
    let parked = &seen["parked"][0];
    assert_eq!(
        (&seen["total"], &seen["total_parked"]),
        (&json!(0), &json!(1)),
        "{seen}"
    );
    assert_eq!(
        (&parked["id"], &parked["tool"]),
        (&json!("p1"), &json!("one__ask")),
        "{seen}"
    );
    assert_eq!(
        (&parked["waits_for"], &parked["method"]),
        (&json!(["elicitation/create"]), &json!("tools/call"))
    );
    assert!(
        parked["since"].as_str() < parked["until"].as_str(),
        "{parked}"
    );
    assert_eq!(
        ops.get_json("/admin/calls?upstream=two").await["parked"],
        json!([])
    );
    for path in ["/", "/upstreams/one"] {
        let page = body(&ops.get(path).await);
        assert!(
            page.contains("Parked calls: 1") && page.contains("elicitation/create"),
            "{page}"
        );
    }
    let said = Weir::run_cli(&["admin", "--admin", &weir.admin_url(), "calls"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.contains("PARKED") && said.contains("p1") && said.contains("elicitation/create"),
        "{said}"
    );
    let ended = again(&client, &state).await;
    assert_eq!(ended["result"]["resultType"], "complete", "{ended}");
    assert_eq!(ops.get_json("/admin/calls").await["total_parked"], 0);

    // Cancelled, or its upstream disabled: in both cases a retry does not find the call, and its
    // server stops.
    let told = || one.requests_of("notifications/cancelled").len();
    let ended = async |path: &str| {
        let (state, cancelled) = (ask(&client).await, told());
        let done = ops
            .change(path, json!({ "reason": "nobody comes back" }))
            .await;
        wait_until("the cancel at its server", || {
            (told() > cancelled).then_some(())
        });
        assert_eq!(ops.get_json("/admin/calls").await["total_parked"], 0);
        (state, done)
    };
    let (state, _) = ended("/admin/calls/p2/cancel").await;
    let refused = again(&client, &state).await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no longer waits"),
        "{refused}"
    );
    assert_eq!(
        ops.try_change("/admin/calls/p2/cancel", &json!({}))
            .await
            .status,
        404
    );
    let (_, done) = ended("/admin/upstreams/one/disable").await;
    assert_eq!(done["ended_calls"], 1, "{done}");
}
