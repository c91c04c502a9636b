//! Sessions that other replicas take over while this one runs calls of theirs.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir_front::FrontSettings;
use weir_testkit::{HttpExchange, RawClient};
use weir_wire::Revision;

use crate::test_front::{TestFront, in_time, settings};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

fn settings_with(stream_after: Duration) -> FrontSettings {
    let mut settings = settings();
    settings.limits.stream_after = stream_after;
    settings
}

async fn client_of(world: &TestFront, revision: Revision) -> RawClient {
    let client = world.client().legacy(revision);
    client.initialize().await.unwrap()
}

async fn call_silently(client: &RawClient) -> HttpExchange {
    let arguments = json!({ "name": "wait", "arguments": { "silent": true } });
    client.request("tools/call", arguments).await.unwrap()
}

fn text_of(answer: &Value) -> &str {
    answer["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn call_of_a_session_that_was_taken_back_runs_on() {
    for revision in [Revision::V2025_06_18, Revision::V2025_11_25] {
        let world = TestFront::with_recorded_streams(settings_with(Duration::from_millis(1))).await;
        let client = client_of(&world, revision).await;
        let answer = call_silently(&client).await;
        // The second report is heard after the effects of the first.
        for _ in 0..2 {
            in_time("the report", world.records.lose_all(true)).await;
        }
        world.upstream.release();
        let end = in_time("the answer", answer.finish()).await.unwrap();
        assert_eq!(text_of(end.result()), "waited");
    }
}

#[tokio::test]
async fn clients_get_answers_to_calls_of_a_session_that_moved() {
    for (revision, stream_after) in [
        (Revision::V2025_06_18, Duration::from_millis(1)),
        (Revision::V2025_11_25, Duration::from_millis(1)),
        (Revision::V2025_06_18, NEVER),
    ] {
        let mut world = TestFront::with_recorded_streams(settings_with(stream_after)).await;
        let client = client_of(&world, revision).await;
        let call = async { call_silently(&client).await.finish().await.unwrap() };
        let moved = async {
            world.upstream.wait_for_calls().await;
            world.records.lose_all(false).await;
        };
        let (end, ()) = in_time("the answer", async { tokio::join!(call, moved) }).await;
        assert_eq!(end.result()["isError"], true);
        let text = text_of(end.result());
        assert!(text.contains("moved to another replica"), "{text}");
        in_time("the cancellation", world.cancelled.recv()).await;
        if stream_after != NEVER {
            // A client that resumes the stream elsewhere gets the same answer.
            let event = world.replays.last_event();
            assert!(event.contains("moved to another replica"), "{event}");
        }
    }
}

#[tokio::test]
async fn batch_of_a_session_that_moved_is_answered() {
    let world = TestFront::anonymous(settings_with(NEVER)).await;
    let client = client_of(&world, Revision::V2025_03_26).await;
    let silent = json!({ "name": "wait", "arguments": { "silent": true } });
    let (headers, call) = client.envelope("tools/call", silent);
    let batch = client.send(Method::POST, headers, json!([call]).to_string());
    let moved = async {
        world.upstream.wait_for_calls().await;
        world.records.lose_all(false).await;
    };
    let (answer, ()) = in_time("the answer", async { tokio::join!(batch, moved) }).await;
    let end = answer.unwrap().finish().await.unwrap();
    let text = text_of(&end.messages[0]["result"]);
    assert!(text.contains("moved to another replica"), "{text}");
}
