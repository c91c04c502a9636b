//! Tasks that run over graceful restarts, in sessions that their server knows them by.

use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::handover_bench::HandoverBench;
use super::is_gone;
use crate::harness::{signal, wait_until, wait_until_async};

/// The upstream session of the last request with this method.
fn last_session(bench: &HandoverBench, method: &str) -> Option<String> {
    let request = bench.mockup.requests_of(method).pop()?;
    request.header("mcp-session-id").map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_a_running_task_outlives_a_graceful_restart_and_a_reload() {
    let server = MockServer::legacy(Revision::V2025_11_25)
        .with_tasks()
        .tool("echo", MockBehaviour::echo());
    let mut bench = HandoverBench::new(server).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let params = json!({ "name": "task_waits", "arguments": {}, "task": { "ttl": 600_000 } });
    let created = client.ask("tools/call", params).await.unwrap();
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    let own = last_session(&bench, "tools/call");
    assert!(own.is_some());
    let state = client.ask("tasks/get", about.clone()).await.unwrap();
    assert_eq!(state.result()["status"], "working", "{}", state.last());
    assert_eq!(last_session(&bench, "tasks/get"), own);

    bench.hand_over();
    let before = bench.processes[0];
    wait_until("the process before to end", || {
        is_gone(before).then_some(())
    });
    let mut config = bench.weir.config();
    config["upstreams"]["one"]["headers"] = json!({ "x-reloaded": "1" });
    bench.weir.rewrite_config(config);
    signal(bench.processes[1], "HUP");
    wait_until_async("a call with the new settings", async || {
        let params = json!({ "name": "echo", "arguments": {} });
        client.ask("tools/call", params).await.unwrap();
        let request = bench.mockup.requests_of("tools/call").pop()?;
        request.header("x-reloaded").map(|_| ())
    })
    .await;
    assert_ne!(
        last_session(&bench, "tools/call"),
        own,
        "a session of the new settings"
    );
    let state = client.ask("tasks/get", about.clone()).await.unwrap();
    assert_eq!(state.result()["status"], "working", "{}", state.last());
    assert_eq!(
        last_session(&bench, "tasks/get"),
        own,
        "the session of the task"
    );
    bench.end();
}
