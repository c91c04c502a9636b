//! `requestState` between two modern peers: sealed on the way out, opened on the way back for the
//! very same call only.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::RawClient;
use weir_wire::error_code;

use crate::test_front::{TestFront, settings};

async fn ask(client: &RawClient, tool: &str, arguments: Value, state: Option<&str>) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    if let Some(state) = state {
        params["requestState"] = state.into();
    }
    client
        .ask("tools/call", params)
        .await
        .unwrap()
        .last()
        .clone()
}

async fn state(client: &RawClient) -> String {
    let first = ask(client, "ask", json!({"a": 1, "b": {"c": [2]}}), None).await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let state = first["result"]["requestState"].as_str().unwrap().to_owned();
    assert!(
        !state.contains("upstream"),
        "the upstream's state is sealed"
    );
    state
}

// Proves R170, R173.
#[tokio::test]
async fn a_state_comes_back_to_the_upstream_as_it_was() {
    let world = TestFront::with_tokens(settings()).await;
    let alice = world.modern("alice");
    let state = state(&alice).await;
    // The same arguments in another order.
    let again = ask(
        &alice,
        "ask",
        json!({"b": {"c": [2]}, "a": 1}),
        Some(&state),
    )
    .await;
    assert_eq!(
        again["result"]["content"][0]["text"],
        "resumed the \"upstream's\" own"
    );
}

// Proves R174, B19.
#[tokio::test]
async fn a_state_opens_for_its_own_call_only() {
    let world = TestFront::with_tokens(settings()).await;
    let (alice, bob) = (world.modern("alice"), world.modern("bob"));
    let state = state(&alice).await;
    let same = json!({"a": 1, "b": {"c": [2]}});
    let changed = format!(
        "{}{}",
        &state[..state.len() - 1],
        if state.ends_with('A') { 'Q' } else { 'A' }
    );
    let refused = [
        ask(&bob, "ask", same.clone(), Some(&state)).await,
        ask(
            &alice,
            "ask",
            json!({"a": 2, "b": {"c": [2]}}),
            Some(&state),
        )
        .await,
        ask(&alice, "echo", same.clone(), Some(&state)).await,
        ask(&alice, "ask", same.clone(), Some(&changed)).await,
        ask(&alice, "ask", same.clone(), Some("")).await,
    ];
    for answer in refused {
        assert_eq!(
            answer["error"]["code"],
            error_code::INVALID_PARAMS,
            "{answer}"
        );
    }
    world.clock.advance(Duration::from_secs(601));
    let late = ask(&alice, "ask", same, Some(&state)).await;
    assert_eq!(late["error"]["code"], error_code::INVALID_PARAMS, "{late}");
}

// Proves R179.
#[tokio::test]
async fn legacy_client_of_a_server_that_asks_for_a_repeat_sees_one_call() {
    let world = TestFront::with_tokens(settings()).await;
    let alice = world.legacy("alice").await;
    let answer = ask(&alice, "ask", json!({}), None).await;
    assert_eq!(
        answer["result"]["content"][0]["text"], "resumed the \"upstream's\" own",
        "{answer}"
    );
}
