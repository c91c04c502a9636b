//! Tasks that clients follow on a listening stream, whose servers are silent about changes.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockBehaviour;
use weir_wire::Revision;

use super::weir_over;
use crate::harness::CheckedClient;

/// The longest wait for news. Without another request weir would ask the server after 30 s.
const NEWS_WAIT: Duration = Duration::from_secs(15);

fn state(status: &str) -> MockBehaviour {
    let mut state = json!({
        "taskId": "task-1", "status": status, "ttlMs": null,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z",
    });
    if status == "completed" {
        state["result"] = json!({ "content": [], "resultType": "complete" });
    }
    MockBehaviour::result(state)
}

async fn next_status(stream: &mut crate::harness::CheckedStream) -> Value {
    let message = tokio::time::timeout(NEWS_WAIT, stream.next()).await;
    let mut message = message.expect("no news of the task").unwrap();
    message["params"]["status"].take()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_that_another_client_reads_reaches_the_clients_that_follow_the_task() {
    let server = MockServer::modern()
        .with_tasks()
        .with_rule("tasks/get", state("working"))
        .start()
        .await;
    let weir = weir_over(&[("one", &server)]);
    weir.wait_until_listed("/mcp", &["one__task_waits"]);
    let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::MODERN, able).await;
    let begun = client.call("one__task_waits", json!({})).await;
    let task = begun.result()["taskId"].clone();
    let filter = json!({ "notifications": { "taskIds": [task] } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    stream.next().await.unwrap();
    assert_eq!(next_status(&mut stream).await, "working");
    // weir asks again once the server has promised notifications, of which there are none.
    server
        .wait_until("the subscription", |mock| {
            mock.requests_of("tasks/get").len() > 1
        })
        .await;

    server.clear_rules();
    server.add_rule("tasks/get", usize::MAX, state("completed"));
    let read = client.ask("tasks/get", json!({ "taskId": task })).await;
    assert_eq!(read.result()["status"], "completed", "{}", read.last());
    assert_eq!(next_status(&mut stream).await, "completed");
}
