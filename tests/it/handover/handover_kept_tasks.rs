//! Results that weir keeps as tasks, over graceful restarts.

use serde_json::{Value, json};
use weir_testkit::mock_server::{CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer, ModernEnvelope, RawClient};
use weir_wire::Revision;

use super::handover_bench::HandoverBench;
use crate::harness::{wait_until_async, within_test_timeout};

/// The call of a tool, to be kept as a task.
fn call(tool: &str) -> Value {
    json!({ "name": tool, "arguments": { "n": 1 }, "task": { "ttl": 60_000 } })
}

/// Checks that the result of a task is found, by clients with sessions and by others.
async fn check_result(bench: &HandoverBench, client: &RawClient, about: &Value) {
    let result = client.ask("tasks/result", about.clone()).await.unwrap();
    assert!(result.last()["result"].is_object(), "{}", result.last());
    assert_eq!(result.text(), r#"{"n":1}"#);
    let state = client.ask("tasks/get", about.clone()).await.unwrap();
    assert_eq!(state.result()["status"], "completed", "{}", state.last());
    let modern = RawClient::new(&bench.weir.url("/mcp")).modern_with(ModernEnvelope {
        capabilities: json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
        ..ModernEnvelope::default()
    });
    let state = modern.ask("tasks/get", about.clone()).await.unwrap();
    let state = &state.last()["result"];
    assert_eq!(
        state["result"]["content"][0]["text"], r#"{"n":1}"#,
        "{state}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_result_of_a_task_moves_to_the_next_process_and_to_the_one_after_it() {
    let server = MockServer::modern()
        .with_tasks_of(Revision::MODERN)
        .tool("echo", MockBehaviour::echo());
    let mut bench = HandoverBench::new(server).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let created = client.ask("tools/call", call("echo")).await.unwrap();
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    check_result(&bench, &client, &about).await;
    for _ in 0..2 {
        bench.hand_over();
        // Requests of this moment reach the one process or the other.
        check_result(&bench, &client, &about).await;
        bench.wait_until_it_accepts_alone();
        check_result(&bench, &client, &about).await;
    }
    assert_eq!(
        bench.mock_server.executions("echo"),
        1,
        "no call is made twice"
    );
    bench.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_a_call_that_ends_in_the_process_before_is_found_in_the_next() {
    let gate = CallGate::new();
    let gated = MockTool::new("gated").does(MockBehaviour::gated_after_progress(&gate));
    let server = MockServer::modern()
        .with_tasks_of(Revision::MODERN)
        .tool("echo", MockBehaviour::echo())
        .with(gated);
    let mut bench = HandoverBench::new(server).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.ask("tools/call", call("gated")).await }
    });
    wait_until_async("the call at the server", async || {
        (bench.mock_server.requests_of("tools/call").len() == 1).then_some(())
    })
    .await;
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    gate.open();
    let created = within_test_timeout("the task", calling)
        .await
        .unwrap()
        .unwrap();
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    check_result(&bench, &client, &about).await;
    bench.end();
}
