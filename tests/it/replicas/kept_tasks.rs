//! Tasks whose replica ends: their results are kept where the other replicas find them.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{FaultProxy, MockBehaviour, MockServer, TestFolder};
use weir_wire::Revision;

use super::{COUNT, at, config, open_at, start};
use crate::admin::OperatorClient;
use crate::harness::{
    CheckedClient, ForeignServer, Replicas, Weir, peers_are_enabled, wait_until_async,
};
use crate::tenant_isolation::TENANTS;

/// Starts a modern server with tasks and one tool.
async fn server_with_tasks() -> MockServer {
    MockServer::modern()
        .with_tasks_of(Revision::MODERN)
        .tools(1)
        .start()
        .await
}

/// Makes a call whose result comes at once and is kept as a task; returns the name of that.
async fn begin(client: &CheckedClient) -> String {
    let params = json!({ "name": "tool_0000", "arguments": { "n": 1 }, "task": { "ttl": 60_000 } });
    let answer = client.ask("tools/call", params).await;
    let task = &answer.result()["task"];
    assert_eq!(task["status"], "completed", "{}", answer.last());
    task["taskId"].as_str().unwrap().to_owned()
}

async fn seen_replicas(weir: &Weir) -> Value {
    OperatorClient::of(weir).get_json("/admin/replicas").await
}

/// Kills a replica, and removes it from the registry, as the others do a minute later: until then it
/// may have been paused.
async fn kill_and_forget(replicas: &mut Replicas, number: usize) {
    let seen = seen_replicas(replicas.replica(number)).await;
    let id = seen["replicas"][0]["id"].as_str().unwrap().to_owned();
    replicas.kill(number).await;
    for words in [
        ["ZREM", "{weir:replicas}:seen"],
        ["HDEL", "{weir:replicas}:info"],
    ] {
        replicas.redis().run(&[words[0], words[1], &id]);
    }
    for other in replicas.running() {
        wait_until_async("the others to forget the replica", async || {
            let seen = seen_replicas(other).await;
            let mut ids = seen["replicas"].as_array()?.iter();
            ids.all(|replica| replica["id"] != id).then_some(())
        })
        .await;
    }
}

/// Returns the names of the copies of tasks.
fn copies(replicas: &Replicas) -> Vec<String> {
    let names = replicas.redis().keys().into_iter();
    names.filter(|name| name.starts_with("weir:t:")).collect()
}

/// Starts replicas with a child each, whose tasks run until there is a file in this folder.
async fn start_with_children(count: usize, folder: &TestFolder) -> Replicas {
    let child = ForeignServer::task_progress(&folder.file("end"), &folder.file("steps"));
    let config = json!({
        "upstreams": { "one": child },
        "endpoints": { "/mcp": { "upstream": "one" } },
    });
    let replicas = Replicas::start(count, config).await;
    for replica in replicas.running() {
        replica.wait_until_listed("/mcp", &["job"]);
    }
    replicas
}

/// Begins a task that runs on; returns the parameters of requests about it.
async fn begin_job(client: &CheckedClient) -> Value {
    let call = json!({ "name": "job", "arguments": {}, "task": { "ttl": 600_000 } });
    let created = client.ask("tools/call", call).await;
    json!({ "taskId": created.result()["task"]["taskId"] })
}

/// One replica has the task, another one the session, and a third one gets the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_session_elsewhere_is_found_through_every_replica() {
    if !peers_are_enabled() {
        return;
    }
    let folder = TestFolder::new("third-task");
    let replicas = start_with_children(COUNT, &folder).await;
    let about = begin_job(&open_at(&replicas, 0, Revision::V2025_11_25).await).await;
    let client = open_at(&replicas, 1, Revision::V2025_11_25).await;
    for number in 0..COUNT {
        let client = at(&client, &replicas, number);
        let state = client.ask("tasks/get", about.clone()).await;
        let status = &state.last()["result"]["status"];
        assert_eq!(status, "working", "{number}: {}", state.last());
    }
}

/// A replica may be paused, as in a suspended virtual machine, and go on later with its tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_paused_replica_is_not_unknown_meanwhile() {
    if !peers_are_enabled() {
        return;
    }
    let folder = TestFolder::new("paused-task");
    let replicas = start_with_children(2, &folder).await;
    let revision = Revision::V2025_11_25;
    let about = begin_job(&open_at(&replicas, 0, revision).await).await;
    let other = open_at(&replicas, 1, revision).await;
    let state = other.ask("tasks/get", about.clone()).await;
    assert_eq!(state.result()["status"], "working", "{}", state.last());

    replicas.replica(0).process.signal("STOP");
    // Longer than the other replica waits for news of this one.
    for _ in 0..16 {
        let refused = other.ask("tasks/get", about.clone()).await;
        let error = &refused.last()["error"];
        assert_eq!(error["data"]["reason"], "unavailable", "{error}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    replicas.replica(0).process.signal("CONT");
    wait_until_async("the state of the task", async || {
        let state = other.ask("tasks/get", about.clone()).await;
        (state.last()["result"]["status"] == "working").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_a_task_outlives_its_replica() {
    let upstream = server_with_tasks().await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let name = begin(&client).await;
    let about = json!({ "taskId": name });
    wait_until_async("the copy of the task", async || {
        (copies(&replicas).len() == 1).then_some(())
    })
    .await;
    kill_and_forget(&mut replicas, 0).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_result_of_a_task_is_found_at_every_replica_while_its_own_one_lives() {
    let upstream = server_with_tasks().await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let text = "x".repeat(20_000);
    let arguments = json!({ "text": text });
    let params = json!({ "name": "tool_0000", "arguments": arguments, "task": { "ttl": 60_000 } });
    let created = client.ask("tools/call", params).await;
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    // A session of its own at each replica.
    for number in 0..COUNT {
        let other = open_at(&replicas, number, Revision::NEWEST_LEGACY).await;
        let result = other.ask("tasks/result", about.clone()).await;
        assert_eq!(result.text(), arguments.to_string(), "{}", result.last());
        let state = other.ask("tasks/get", about.clone()).await;
        assert_eq!(state.last()["result"]["status"], "completed", "{number}");
        let cancelled = other.ask("tasks/cancel", about.clone()).await;
        let error = cancelled.last()["error"]["message"].clone();
        assert!(error.as_str().unwrap().contains("is over"), "{error}");
    }
    assert_eq!(copies(&replicas), [""; 0], "it is too large for a copy");
    assert_eq!(upstream.executions("tool_0000"), 1, "no call is made twice");
    kill_and_forget(&mut replicas, 0).await;
    let other = open_at(&replicas, 1, Revision::NEWEST_LEGACY).await;
    let gone = other.ask("tasks/result", about).await;
    assert_eq!(gone.last()["error"]["code"], -32602, "{}", gone.last());
}

/// A status that is read at another replica leaves the result where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_stays_until_its_client_gets_it_although_its_status_is_read_elsewhere() {
    let bytes = 3_500_000;
    let upstream = MockServer::modern()
        .with_tasks_of(Revision::MODERN)
        .tool("large", MockBehaviour::huge(bytes))
        .start()
        .await;
    let mut config = config(&upstream);
    let [ada, _] = &TENANTS;
    let mut key = ada.api_key();
    key["scopes"] = json!([]);
    config["auth"] = json!({ "mode": "required", "api_keys": [key] });
    let replicas = Replicas::start(COUNT, config).await;
    let at = async |number: usize| {
        let url = replicas.replica(number).url("/mcp");
        ada.client(&url, Revision::NEWEST_LEGACY).await
    };
    let (client, other) = (at(0).await, at(1).await);
    let params = json!({ "name": "large", "arguments": {}, "task": { "ttl": 600_000 } });
    let begin = async || client.ask("tools/call", params.clone()).await;
    let created = begin().await;
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    let state = other.ask("tasks/get", about.clone()).await;
    assert_eq!(state.result()["status"], "completed", "{}", state.last());
    let cancelled = other.ask("tasks/cancel", about.clone()).await;
    assert_eq!(cancelled.last()["error"]["code"], -32602);
    // The fifth result has no room beside four others.
    for _ in 0..3 {
        assert!(begin().await.result()["task"].is_object());
    }
    let refused = begin().await;
    let text = refused.last().to_string();
    assert!(text.contains("No more tasks"), "{:.500}", text);
    let result = other.ask("tasks/result", about.clone()).await;
    assert!(result.text().len() >= bytes, "{:.500}", result.last());
    // The client has this result, so it makes room now.
    assert!(begin().await.result()["task"].is_object());
    let gone = other.ask("tasks/result", about).await;
    assert_eq!(gone.last()["error"]["code"], -32602);
}

/// Returns the names of the tasks that a client lists.
async fn listed(client: &CheckedClient) -> Vec<String> {
    let answer = client.ask("tasks/list", json!({})).await;
    let tasks = answer.result()["tasks"].as_array().unwrap();
    let name = |task: &serde_json::Value| task["taskId"].as_str().unwrap().to_owned();
    assert!(tasks.iter().all(|task| task["status"] == "completed"));
    tasks.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_principal_are_listed_at_every_replica() {
    let upstream = server_with_tasks().await;
    let mut config = config(&upstream);
    let keys = TENANTS.each_ref().map(|tenant| {
        let mut key = tenant.api_key();
        key["scopes"] = json!([]);
        key
    });
    config["auth"] = json!({ "mode": "required", "api_keys": keys });
    let mut replicas = Replicas::start(COUNT, config).await;
    let [ada, bob] = &TENANTS;
    let url = |replicas: &Replicas, number: usize| replicas.replica(number).url("/mcp");
    let (mut begun, mut clients) = (Vec::new(), Vec::new());
    for number in 0..COUNT {
        // A session of its own, which this replica owns.
        let own_url = url(&replicas, number);
        let client = ada.client(&own_url, Revision::NEWEST_LEGACY).await;
        begun.push(begin(&client).await);
        // At its own replica a task is listed at once.
        assert!(listed(&client).await.contains(&begun[number]));
        clients.push(client);
    }
    for client in &clients {
        assert_eq!(
            listed(client).await,
            begun,
            "in the order of their beginning"
        );
    }
    let other = bob
        .client(&url(&replicas, 0), Revision::NEWEST_LEGACY)
        .await;
    assert_eq!(listed(&other).await, [""; 0]);
    replicas.kill(0).await;
    assert_eq!(listed(&clients[1]).await, begun, "it outlives its replica");
}

/// The tool of the reference server whose calls become tasks.
const RESEARCH: &str = "simulate-research-query";

/// The task is in the child process of the first replica alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_child_process_is_found_by_legacy_clients_at_another_replica() {
    if !peers_are_enabled() {
        return;
    }
    let config = json!({
        "upstreams": { "peer": ForeignServer::Everything.as_child() },
        "endpoints": { "/mcp": { "upstream": "peer" } },
    });
    let replicas = Replicas::start(COUNT, config).await;
    let mut clients = Vec::new();
    for replica in replicas.running() {
        replica.wait_until_listed("/mcp", &[RESEARCH]);
        clients.push(CheckedClient::open(&replica.url("/mcp"), Revision::V2025_11_25).await);
    }
    let begin = async || {
        let (arguments, task) = (json!({ "topic": "snakes" }), json!({ "ttl": 60_000 }));
        let params = json!({ "name": RESEARCH, "arguments": arguments, "task": task });
        let begun = clients[0].ask("tools/call", params).await;
        json!({ "taskId": begun.result()["task"]["taskId"] })
    };
    let (about, other) = (begin().await, &clients[1]);
    let state = other.ask("tasks/get", about.clone()).await;
    let state = state.last();
    assert!(state["result"]["status"].is_string(), "{state}");
    let result = other.ask("tasks/result", about.clone()).await;
    assert!(result.text().contains("snakes"), "{}", result.last());
    // It is over.
    let cancelled = other.ask("tasks/cancel", about).await;
    assert_eq!(cancelled.last()["error"]["code"], -32602);
    let cancelled = clients[2].ask("tasks/cancel", begin().await).await;
    let state = &cancelled.last()["result"];
    assert_eq!(state["status"], "cancelled", "{}", cancelled.last());
}

/// A replica that begins does not know its servers' capabilities for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_is_found_at_a_replica_that_does_not_know_its_server_yet() {
    let upstream = MockServer::modern().with_tasks().start().await;
    let between = FaultProxy::start(upstream.address()).await;
    let mut config = config(&upstream);
    config["upstreams"]["one"]["url"] = json!(between.url("/mcp"));
    let mut replicas = Replicas::start(COUNT, config).await;
    let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let url = replicas.replica(0).url("/mcp");
    let client = CheckedClient::with_capabilities(&url, Revision::MODERN, able).await;
    let created = client.call("task_done", json!({ "n": 1 })).await;
    let about = json!({ "taskId": created.result()["taskId"] });
    between.set_refusing(true);
    between.reset_all();
    let number = replicas.start_another();
    let client = at(&client, &replicas, number);
    let early = client.ask("tasks/get", about.clone()).await;
    let error = &early.last()["error"];
    // The proxy refuses the connection, or breaks it.
    let reason = error["data"]["reason"].as_str().unwrap_or_default();
    let is_failure = ["unavailable", "result_unknown"].contains(&reason);
    assert!(is_failure, "{}", early.last());
    between.set_refusing(false);
    wait_until_async("the result of the task", async || {
        let state = client.ask("tasks/get", about.clone()).await;
        let state = &state.last()["result"];
        (state["status"] == "completed").then(|| assert!(state["result"].is_object(), "{state}"))
    })
    .await;
}

/// A client that asks for a task gets one or a refusal, also while a replica that begins learns whether
/// the server has tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_as_a_task_is_never_answered_without_one() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .with_tasks()
        .start()
        .await;
    let between = FaultProxy::start(upstream.address()).await;
    let mut config = config(&upstream);
    config["upstreams"]["one"]["url"] = json!(between.url("/mcp"));
    let mut replicas = Replicas::start(COUNT, config).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    between.set_refusing(true);
    between.reset_all();
    let number = replicas.start_another();
    let client = at(&client, &replicas, number);
    let params = json!({ "name": "task_done", "arguments": { "n": 1 }, "task": { "ttl": 60_000 } });
    let mut refusals = 0;
    wait_until_async("a task", async || {
        let answer = client.ask("tools/call", params.clone()).await;
        let answer = answer.last();
        let reason = &answer["error"]["data"]["reason"];
        if reason == "unavailable" {
            refusals += 1;
            between.set_refusing(false);
            return None;
        }
        // The proxy accepted the connection and broke it after the call was sent.
        if refusals == 0 && reason == "result_unknown" {
            return None;
        }
        assert!(answer["result"]["task"]["taskId"].is_string(), "{answer}");
        Some(())
    })
    .await;
    assert!(refusals > 0);
}
