//! Calls with messages in both directions, of which each reaches another replica.

use serde_json::{Value, json};
use weir_testkit::mock_server::AnswerStep;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{COUNT, at, open_at, replica_pairs, start, start_with_default_store_timeout};
use crate::harness::{
    CheckedClient, CheckedStream, Replicas, wait_until_async, within_test_timeout,
};

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "message": "Your name?", "requestedSchema": schema })
}

fn prompt() -> Value {
    let content = json!({ "type": "text", "text": "6 times 7?" });
    json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 10 })
}

/// Returns a tool's behaviour that makes a request of its own and returns the answer.
fn asking(method: &'static str, params: Value) -> MockBehaviour {
    MockBehaviour::steps([AnswerStep::Ask { method, params }, AnswerStep::Answer])
}

async fn upstream() -> MockServer {
    MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("elicit", asking("elicitation/create", form()))
        .tool("sample", asking("sampling/createMessage", prompt()))
        .tool("progress", MockBehaviour::progress(3))
        .tool("stuck", MockBehaviour::hang_after_progress())
        .start()
        .await
}

/// Opens a session at the first replica whose client can be asked.
async fn able(replicas: &Replicas) -> CheckedClient {
    let capabilities = json!({ "elicitation": {}, "sampling": {} });
    let url = replicas.replica(0).url("/mcp");
    CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, capabilities).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_a_server_request_reaches_its_call_from_any_replica() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = able(&replicas).await;
    let model =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "42" } });
    let filled = json!({ "action": "accept", "content": { "name": "Ada" } });
    for [calling, answering] in replica_pairs() {
        for (tool, answer) in [("elicit", &filled), ("sample", &model)] {
            let mut call = at(&client, &replicas, calling)
                .start_call(tool, json!({}), None)
                .await;
            let asked = call.next().await.unwrap();
            assert!(asked["id"].is_string() || asked["id"].is_i64(), "{asked}");
            let taken = at(&client, &replicas, answering)
                .raw()
                .respond(&asked["id"], answer.clone())
                .await
                .unwrap();
            assert_eq!((taken.status.as_u16(), taken.body.len()), (202, 0));
            let rest = call.read_rest().await;
            let text = &rest.last().unwrap()["result"]["content"][0]["text"];
            assert_eq!(text, &answer.to_string(), "{rest:?}");
        }
    }
    assert_eq!(upstream.total_executions(), 2 * COUNT * COUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_flows_through_a_replica_that_is_not_the_owner() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    for calling in 0..COUNT {
        let token = json!(format!("token-{calling}"));
        let answer = at(&client, &replicas, calling)
            .call_with_token("progress", json!({ "n": calling }), &token)
            .await;
        assert_eq!(answer.text(), format!(r#"{{"n":{calling}}}"#));
        let notes: Vec<_> = answer.notes("notifications/progress").collect();
        assert_eq!(notes.len(), 3, "{:?}", answer.messages);
        assert!(
            notes
                .iter()
                .all(|note| note["params"]["progressToken"] == token)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellation_from_any_replica_reaches_the_server() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    for (number, [calling, cancelling]) in replica_pairs().enumerate() {
        let mut call = at(&client, &replicas, calling)
            .start_call("stuck", json!({}), Some(&json!(number)))
            .await;
        let first = call.next().await.unwrap();
        assert_eq!(first["method"], "notifications/progress");
        let call = at(&client, &replicas, cancelling).cancel(call).await;
        let rest = call.unwrap().read_rest().await;
        assert_eq!(rest, Vec::<Value>::new(), "no message follows a cancel");
        upstream
            .wait_until("the call was cancelled", |upstream| {
                let counts = upstream.counts("stuck");
                counts.cancelled + counts.abandoned == number + 1
            })
            .await;
    }
}

/// A modern client cancels by closing its connection, and its call runs where it arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_closed_at_the_balancer_cancels_a_modern_call() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = CheckedClient::open(&replicas.url("/mcp"), Revision::MODERN).await;
    let mut call = client.start_call("stuck", json!({}), Some(&json!(1))).await;
    call.next().await.unwrap();
    drop(call);
    upstream
        .wait_until("the call was cancelled", |upstream| {
            let counts = upstream.counts("stuck");
            counts.cancelled + counts.abandoned == 1
        })
        .await;
}

/// Begins a call at the first replica whose server asks, and lets that replica drain until another
/// one owns the session. Returns the call with the id of the question.
async fn ask_at_draining_replica(
    client: &CheckedClient,
    replicas: &Replicas,
) -> (CheckedStream, Value) {
    let mut call = at(client, replicas, 0)
        .start_call("elicit", json!({}), None)
        .await;
    let asked = call.next().await.unwrap();
    replicas.replica(0).process.signal("TERM");
    wait_until_async("another owner of the session", async || {
        // It is refused while the first replica still counts as the owner.
        let ping = at(client, replicas, 1).raw().ask("ping", json!({})).await;
        let sessions = replicas.replica(1).metric("weir_sessions", &[]);
        (ping.is_ok_and(|answer| answer.status == 200) && sessions > 0.5).then_some(())
    })
    .await;
    (call, asked["id"].clone())
}

/// Answers a question at a replica, with a text of so many bytes; expects it in the call's result.
async fn answer_question(client: &CheckedClient, asked: (CheckedStream, Value), bytes: usize) {
    let (call, question) = asked;
    let name = "a".repeat(bytes);
    let filled = json!({ "action": "accept", "content": { "name": name } });
    let taken = client.raw().respond(&question, filled).await.unwrap();
    assert_eq!(taken.status, 202, "{:?}", taken.body);
    let rest = within_test_timeout("the end of the call", call.read_rest()).await;
    let text = &rest.last().unwrap()["result"]["content"][0]["text"];
    assert!(text.as_str().unwrap().contains(&name), "{rest:?}");
}

/// Messages over Redis have at most 8 KiB, and an answer can be a picture.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answer_reaches_a_call_whose_session_has_another_owner() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let client = able(&replicas).await;
    let call = ask_at_draining_replica(&client, &replicas).await;
    answer_question(&at(&client, &replicas, 1), call, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_reaches_a_call_whose_session_has_another_owner_without_redis() {
    let upstream = upstream().await;
    let replicas = start_with_default_store_timeout(&upstream).await;
    let client = able(&replicas).await;
    let call = ask_at_draining_replica(&client, &replicas).await;
    replicas.redis().pause();
    answer_question(&at(&client, &replicas, 2), call, 10).await;
    replicas.redis().resume();
}
