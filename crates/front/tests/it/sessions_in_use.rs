//! Sessions in use: open streams, and calls that last longer than a session may be idle.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use weir_testkit::RawClient;
use weir_wire::Revision;

use crate::test_front::{SHORT_IDLE, TestFront, in_time, settings};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// A front that streams answers after this time, and whose streams send no comments.
async fn front_with_short_sessions(stream_after: Duration) -> TestFront {
    let mut settings = settings();
    settings.limits.session.session_idle = SHORT_IDLE;
    settings.limits.stream_after = stream_after;
    settings.limits.keep_alive = NEVER;
    TestFront::anonymous(settings).await
}

async fn client_of(world: &TestFront, revision: Revision) -> RawClient {
    let client = world.client().legacy(revision);
    client.initialize().await.unwrap()
}

#[tokio::test]
async fn open_get_stream_keeps_its_session_in_use() {
    let mut settings = settings();
    settings.limits.session.session_idle = SHORT_IDLE;
    let world = TestFront::anonymous(settings).await;
    let client = world.legacy("alice").await;
    let _stream = client.get_stream().await.unwrap();
    world.wait_for_renewals().await;
}

#[tokio::test]
async fn call_keeps_its_session_in_use_until_its_answer() {
    let world = front_with_short_sessions(NEVER).await;
    let client = client_of(&world, Revision::V2025_06_18).await;
    let call = client.request(
        "tools/call",
        json!({ "name": "wait", "arguments": { "silent": true } }),
    );
    let renewals = async {
        world.wait_for_renewals().await;
        world.upstream.release();
    };
    let (answer, ()) = tokio::join!(in_time("the answer", call), renewals);
    assert!(!answer.unwrap().is_stream());
}

#[tokio::test]
async fn call_keeps_its_session_in_use_while_its_answer_is_a_silent_stream() {
    let world = front_with_short_sessions(Duration::from_millis(1)).await;
    let client = client_of(&world, Revision::V2025_06_18).await;
    let arguments = json!({ "name": "wait", "arguments": { "silent": true } });
    let answer = client.request("tools/call", arguments).await.unwrap();
    assert!(answer.is_stream());
    world.wait_for_renewals().await;
    world.upstream.release();
    let end = in_time("the answer", answer.finish()).await.unwrap();
    assert!(end.result().is_object());
}

#[tokio::test]
async fn batch_keeps_its_session_in_use_until_its_answer() {
    let world = front_with_short_sessions(NEVER).await;
    let client = client_of(&world, Revision::V2025_03_26).await;
    let silent = json!({ "name": "wait", "arguments": { "silent": true } });
    let (headers, call) = client.envelope("tools/call", silent);
    let batch = client.send(Method::POST, headers, json!([call]).to_string());
    let renewals = async {
        world.wait_for_renewals().await;
        world.upstream.release();
    };
    let (answer, ()) = tokio::join!(in_time("the answer", batch), renewals);
    assert_eq!(answer.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn session_that_is_too_old_does_not_end_during_a_call() {
    let world = front_with_short_sessions(Duration::from_millis(1)).await;
    let client = client_of(&world, Revision::V2025_06_18).await;
    let arguments = json!({ "name": "wait", "arguments": { "silent": true } });
    let answer = client.request("tools/call", arguments).await.unwrap();
    world.clock.advance(Duration::from_secs(365 * 24 * 3600));
    world.wait_for_renewals().await;
    world.upstream.release();
    let end = in_time("the answer", answer.finish()).await.unwrap();
    assert!(end.result().is_object());
    let refused = client.ask("ping", json!({})).await.unwrap();
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
}
