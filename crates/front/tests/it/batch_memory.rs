//! The memory of the answers of a batch.

use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use weir_testkit::ClientAnswer;
use weir_wire::{Revision, meta};

use crate::test_front::{TestFront, settings};

/// The bytes of each result, without its envelope.
const RESULT_BYTES: usize = 1000;
/// The calls of each batch.
const CALLS: usize = 3;

/// Sends a batch of calls in a session of its own.
async fn send_batch(world: &TestFront) -> ClientAnswer {
    let client = world.client().legacy(Revision::V2025_03_26);
    let client = client.initialize().await.unwrap();
    let call = |id| {
        let params = json!({ "name": "echo", "arguments": { "size": RESULT_BYTES } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let calls: Vec<Value> = (0..CALLS).map(call).collect();
    let (headers, _): (HeaderMap, _) = client.envelope("ping", Value::Null);
    let body = Value::Array(calls).to_string();
    let sent = client.send(Method::POST, headers, body).await.unwrap();
    let answer = sent.finish().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert_eq!(answer.messages.len(), CALLS, "{:?}", answer.body);
    answer
}

/// The calls of a batch whose results came, and those that say what their clients are to do.
fn came_and_unknown(answer: &ClientAnswer) -> (usize, usize) {
    let is_error = |message: &&Value| message["result"]["isError"] == true;
    let (errors, came): (Vec<_>, Vec<_>) = answer.messages.iter().partition(is_error);
    for error in &errors {
        let text = error["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("The tool ran: check before calling"),
            "{text}"
        );
        let reason = &error["result"]["_meta"][meta::WEIR_ERROR]["reason"];
        assert_eq!(reason, "result_unknown", "{error}");
    }
    let is_whole = |message: &&Value| {
        let text = message["result"]["content"][0]["text"].as_str();
        text.is_some_and(|text| text.len() == RESULT_BYTES + "echo".len())
    };
    assert!(came.iter().all(is_whole), "{came:?}");
    (came.len(), errors.len())
}

#[tokio::test]
async fn every_call_of_a_batch_is_answered_whatever_memory_is_left() {
    let world = TestFront::anonymous(settings()).await;
    let whole = send_batch(&world).await;
    assert_eq!(came_and_unknown(&whole), (CALLS, 0));
    assert_eq!(world.budgets.messages.used(), 0);
    let results = whole.body.len() - CALLS - 1;
    // One caller leaves a fourth of the memory to others: the results alone fill the rest.
    world
        .budgets
        .messages
        .set_limit(results.div_ceil(3) + results);
    assert_eq!(came_and_unknown(&send_batch(&world).await), (CALLS, 0));
    for most in 0..CALLS {
        let bytes = results / CALLS * most;
        world.budgets.messages.set_limit(bytes.div_ceil(3) + bytes);
        let (came, unknown) = came_and_unknown(&send_batch(&world).await);
        assert_eq!((came, unknown), (most, CALLS - most));
    }
    assert_eq!(world.budgets.messages.used(), 0);
}

#[tokio::test]
async fn calls_beyond_the_limit_of_a_batch_are_not_to_be_repeated_unchecked() {
    let mut settings = settings();
    settings.limits.batch_bytes = RESULT_BYTES * 2;
    let world = TestFront::anonymous(settings).await;
    assert_eq!(came_and_unknown(&send_batch(&world).await), (1, CALLS - 1));
}
