//! Tasks whose replica ends: their results are kept where the other replicas find them.

use serde_json::json;
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::{at, open_at, start};
use crate::harness::{CheckedClient, Replicas, wait_until_async};

/// Makes a call whose result comes at once and is kept as a task; returns the name of that.
async fn begin(client: &CheckedClient) -> String {
    let params = json!({ "name": "tool_0000", "arguments": { "n": 1 }, "task": { "ttl": 60_000 } });
    let answer = client.ask("tools/call", params).await;
    let task = &answer.result()["task"];
    assert_eq!(task["status"], "completed", "{}", answer.last());
    task["taskId"].as_str().unwrap().to_owned()
}

/// Returns the names of the copies of tasks.
fn copies(replicas: &Replicas) -> Vec<String> {
    let names = replicas.redis().keys().into_iter();
    names.filter(|name| name.starts_with("weir:t:")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_a_task_outlives_its_replica() {
    let upstream = MockServer::modern()
        .with_tasks_of(Revision::MODERN)
        .tools(1)
        .start()
        .await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let name = begin(&client).await;
    let about = json!({ "taskId": name });
    wait_until_async("the copy of the task", async || {
        (copies(&replicas).len() == 1).then_some(())
    })
    .await;
    replicas.kill(0).await;
    for number in [1, 2] {
        let client = at(&client, &replicas, number);
        let result = client.ask("tasks/result", about.clone()).await;
        assert_eq!(result.text(), r#"{"n":1}"#, "{}", result.last());
        let state = client.ask("tasks/get", about.clone()).await;
        assert_eq!(state.result()["status"], "completed");
    }
    assert_eq!(upstream.executions("tool_0000"), 1, "no call is made twice");
    // A name that weir did not make is unknown, and so is a task whose time is over.
    let client = at(&client, &replicas, 2);
    let unknown = client.ask("tasks/get", json!({ "taskId": "none" })).await;
    assert_eq!(unknown.last()["error"]["code"], -32602);
    for name in copies(&replicas) {
        replicas.redis().run(&["DEL", &name]);
    }
    let over = client.ask("tasks/get", about).await;
    assert_eq!(over.last()["error"]["code"], -32602, "{}", over.last());
}
