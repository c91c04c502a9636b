//! Tasks that run while a reload changes or removes their upstream: a reload ends no work.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::weir_over;
use crate::harness::{CheckedClient, Weir, wait_until, wait_until_async};

const NEWEST: Revision = Revision::NEWEST_LEGACY;

/// Begins a task of a tool; returns the client's name for it.
async fn begin(client: &CheckedClient, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": { "n": 1 }, "task": { "ttl": 60_000 } });
    let answer = client.ask("tools/call", params).await;
    let task = &answer.result()["task"];
    assert_eq!(task["status"], "working", "{}", answer.last());
    json!({ "taskId": task["taskId"] })
}

/// Reads a running task, cancels it, and reads it again.
async fn check_and_cancel(client: &CheckedClient, task: &Value) {
    let state = client.ask("tasks/get", task.clone()).await;
    assert_eq!(
        state.last()["result"]["status"],
        "working",
        "{}",
        state.last()
    );
    let state = client.ask("tasks/cancel", task.clone()).await;
    assert_eq!(
        state.last()["result"]["status"],
        "cancelled",
        "{}",
        state.last()
    );
    let state = client.ask("tasks/get", task.clone()).await;
    assert_eq!(
        state.last()["result"]["status"],
        "cancelled",
        "{}",
        state.last()
    );
}

async fn check_result(client: &CheckedClient, task: &Value) {
    let result = client.ask("tasks/result", task.clone()).await;
    assert!(result.last()["result"].is_object(), "{}", result.last());
    assert_eq!(result.text(), r#"{"n":1}"#);
}

async fn server() -> MockServer {
    MockServer::legacy(NEWEST)
        .with_tasks()
        .tools(1)
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_tasks_go_on_in_their_session_when_a_reload_changes_their_upstream() {
    let before = server().await;
    let after = MockServer::legacy(NEWEST)
        .with_tasks()
        .tools(2)
        .start()
        .await;
    let weir = weir_over(&[("one", &before)]);
    weir.wait_until_listed("/mcp", &["one__task_waits"]);
    let client = CheckedClient::open(&weir.url("/mcp"), NEWEST).await;
    let waiting = begin(&client, "one__task_waits").await;
    let done = begin(&client, "one__task_done").await;
    weir.rewrite_config(json!({ "upstreams": { "one": { "url": after.url() } } }));
    weir.wait_until_listed("/mcp", &["one__tool_0001"]);
    check_result(&client, &done).await;
    check_and_cancel(&client, &waiting).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(
            after.requests_of(method).len(),
            0,
            "no task of this server: {method}"
        );
    }
    // A task that begins now is one of the present server.
    let next = begin(&client, "one__task_done").await;
    check_result(&client, &next).await;
    assert!(!after.requests_of("tasks/result").is_empty());
    // Nothing needs the sessions of before any more.
    before
        .wait_until("the end of the sessions", |mock| mock.sessions() == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_tasks_of_a_removed_upstream_can_still_be_asked_about() {
    let (one, two) = (server().await, server().await);
    let weir = weir_over(&[("one", &one), ("two", &two)]);
    weir.wait_until_listed("/mcp", &["one__task_waits", "two__task_waits"]);
    let client = CheckedClient::open(&weir.url("/mcp"), NEWEST).await;
    let waiting = begin(&client, "one__task_waits").await;
    let done = begin(&client, "one__task_done").await;
    weir.rewrite_config(json!({ "upstreams": { "two": { "url": two.url() } } }));
    wait_until("the upstream to go", || {
        let tools = weir.list_tools("/mcp");
        (!tools
            .iter()
            .any(|tool| tool.contains("task_waits") && tool.starts_with("one")))
        .then_some(())
    });
    check_result(&client, &done).await;
    check_and_cancel(&client, &waiting).await;
    let refused = client
        .ask(
            "tools/call",
            json!({ "name": "one__tool_0000", "arguments": {} }),
        )
        .await;
    assert!(
        refused.last()["error"].is_object(),
        "no call goes there: {}",
        refused.last()
    );
    one.wait_until("the end of the sessions", |mock| mock.sessions() == 0)
        .await;
}

/// A server of 2026-07-28 with tasks.
async fn modern_server() -> MockServer {
    MockServer::modern().with_tasks().tools(1).start().await
}

async fn modern_client(weir: &Weir) -> CheckedClient {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::MODERN, tasks).await
}

/// Begins a task of a client of 2026-07-28; returns its params.
async fn begin_modern(client: &CheckedClient, tool: &str) -> Value {
    let answer = client.call(tool, json!({ "n": 1 })).await;
    assert_eq!(answer.result()["resultType"], "task", "{}", answer.last());
    json!({ "taskId": answer.result()["taskId"] })
}

/// Waits for the end of a task; returns its last state.
async fn completed(client: &CheckedClient, task: &Value) -> Value {
    wait_until_async("the end of the task", async || {
        let answer = client.ask("tasks/get", task.clone()).await;
        let state = answer.result();
        (state["status"] == "completed").then(|| state.clone())
    })
    .await
}

async fn check_modern(client: &CheckedClient, done: &Value, waiting: &Value) {
    let state = completed(client, done).await;
    let result = &state["result"]["content"][0]["text"];
    assert_eq!(result, r#"{"n":1}"#, "{state}");
    let state = client.ask("tasks/get", waiting.clone()).await;
    assert_eq!(state.result()["status"], "working", "{}", state.last());
    let cancelled = client.ask("tasks/cancel", waiting.clone()).await;
    assert!(
        cancelled.last()["result"].is_object(),
        "{}",
        cancelled.last()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_tasks_of_a_modern_server_go_on_when_a_reload_changes_its_url() {
    let before = modern_server().await;
    let after = MockServer::modern().with_tasks().tools(2).start().await;
    let weir = weir_over(&[("one", &before)]);
    weir.wait_until_listed("/mcp", &["one__task_waits"]);
    let client = modern_client(&weir).await;
    let waiting = begin_modern(&client, "one__task_waits").await;
    let done = begin_modern(&client, "one__task_done").await;
    weir.rewrite_config(json!({ "upstreams": { "one": { "url": after.url() } } }));
    weir.wait_until_listed("/mcp", &["one__tool_0001"]);
    check_modern(&client, &done, &waiting).await;
    for method in ["tasks/get", "tasks/cancel"] {
        assert!(!before.requests_of(method).is_empty());
        assert_eq!(
            after.requests_of(method).len(),
            0,
            "no task of this server: {method}"
        );
    }
    let next = begin_modern(&client, "one__task_done").await;
    completed(&client, &next).await;
    assert!(!after.requests_of("tasks/get").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_tasks_of_a_removed_modern_server_can_still_be_asked_about() {
    let (one, two) = (modern_server().await, modern_server().await);
    let weir = weir_over(&[("one", &one), ("two", &two)]);
    weir.wait_until_listed("/mcp", &["one__task_waits", "two__task_waits"]);
    let client = modern_client(&weir).await;
    let waiting = begin_modern(&client, "one__task_waits").await;
    let done = begin_modern(&client, "one__task_done").await;
    weir.rewrite_config(json!({ "upstreams": { "two": { "url": two.url() } } }));
    wait_until("the upstream to go", || {
        let tools = weir.list_tools("/mcp");
        (!tools.iter().any(|tool| tool.starts_with("one"))).then_some(())
    });
    check_modern(&client, &done, &waiting).await;
}
