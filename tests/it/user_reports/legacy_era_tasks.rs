//! A server of both eras with tasks in its legacy era alone.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockBehaviour;
use weir_wire::{Revision, meta};

use crate::harness::{CheckedClient, Weir, wait_until_async};

const LEGACY: Revision = Revision::NEWEST_LEGACY;

/// A server whose modern era declares no tasks extension.
async fn server() -> MockServer {
    let discovered = json!({
        "resultType": "complete",
        "supportedVersions": [Revision::MODERN.as_str()],
        "capabilities": { "tools": {} },
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": { meta::SERVER_INFO: { "name": "mock", "version": "1.0.0" } },
    });
    MockServer::dual()
        .with_tasks_of(LEGACY)
        .with_rule("server/discover", MockBehaviour::result(discovered))
        .start()
        .await
}

/// The task support of `task_only` in the client's list.
async fn listed_support(client: &CheckedClient) -> Value {
    let tools = client.list_tool_pages().await.0;
    let only = tools.iter().find(|tool| tool["name"] == "task_only");
    only.expect("it is listed")["execution"]["taskSupport"].clone()
}

/// Its list said `required`, and a call as a task was told to be one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_that_are_tasks_in_the_legacy_era_alone_are_called_as_tasks() {
    let server = server().await;
    let weir = Weir::with_config(json!({
        "upstreams": { "shop": { "url": server.url() } },
        "endpoints": { "/shop": { "upstream": "shop" } },
    }));
    let url = weir.url("/shop");
    let first = CheckedClient::open(&url, LEGACY).await;
    // The first call of a client with a session finds the legacy era.
    first.call("task_done", json!({})).await.result();
    wait_until_async("the list of the legacy era", async || {
        (listed_support(&first).await == "required").then_some(())
    })
    .await;
    let hello = json!({
        "protocolVersion": LEGACY.as_str(),
        "capabilities": {},
        "clientInfo": { "name": "late", "version": "1" },
    });
    let opened = first.raw().ask("initialize", hello).await.unwrap();
    let declared = &opened.result()["capabilities"]["tasks"]["requests"]["tools"]["call"];
    assert!(declared.is_object(), "{}", opened.result());

    let client = CheckedClient::open(&url, LEGACY).await;
    let as_task =
        json!({ "name": "task_only", "arguments": { "n": 7 }, "task": { "ttl": 60_000 } });
    let begun = client.ask("tools/call", as_task).await;
    let task = begun.result()["task"]["taskId"].clone();
    assert!(task.is_string(), "{}", begun.last());
    let about = json!({ "taskId": task });
    let state = client.ask("tasks/get", about.clone()).await;
    assert_eq!(state.result()["taskId"], task, "{}", state.last());
    let ended = client.ask("tasks/result", about).await;
    assert_eq!(ended.text(), r#"{"n":7}"#, "{}", ended.last());
    let plain = client.call("task_only", json!({})).await;
    assert_eq!(plain.code(), -32601, "{}", plain.last());
    let told = plain.error()["message"].as_str().unwrap_or_default();
    assert!(told.contains("send `task` with the call"), "{told}");

    // Clients of the modern era have no tasks there.
    let modern = CheckedClient::open(&url, Revision::MODERN).await;
    assert_eq!(listed_support(&modern).await, Value::Null);
    let asked = modern.ask("tasks/get", json!({ "taskId": "x" })).await;
    assert_eq!(asked.code(), -32601, "{}", asked.last());
}
