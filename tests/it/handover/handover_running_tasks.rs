//! Tasks that run over graceful restarts, in sessions that their server knows them by.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::handover_bench::HandoverBench;
use super::{is_gone, successors};
use crate::harness::{
    CheckedClient, ForeignServer, Weir, listening_ports_of_process, peers_are_enabled, signal,
    wait_until, wait_until_async, within_test_timeout,
};

/// The tool of the reference server whose calls become tasks.
const RESEARCH: &str = "simulate-research-query";

/// The upstream session of the last request with this method.
fn last_session(bench: &HandoverBench, method: &str) -> Option<String> {
    let request = bench.mock_server.requests_of(method).pop()?;
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
    check_after_reload(&bench, &client, about, own).await;
    bench.end();
}

/// Reloads the new process with other settings of the upstream, and checks that a running task is
/// still asked about in its own session.
async fn check_after_reload(
    bench: &HandoverBench,
    client: &RawClient,
    about: Value,
    own: Option<String>,
) {
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
        let request = bench.mock_server.requests_of("tools/call").pop()?;
        request.header("x-reloaded").map(|_| ())
    })
    .await;
    assert_ne!(
        last_session(bench, "tools/call"),
        own,
        "a session of the new settings"
    );
    let state = client.ask("tasks/get", about.clone()).await.unwrap();
    assert_eq!(state.result()["status"], "working", "{}", state.last());
    assert_eq!(
        last_session(bench, "tasks/get"),
        own,
        "the session of the task"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_held_for_a_call_that_becomes_a_task_in_the_process_before() {
    let gate = CallGate::new();
    let task = json!({
        "taskId": "late", "status": "working", "ttl": 600_000,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z",
    });
    let created = AnswerStep::Result(json!({ "task": task.clone() }));
    let slow = MockTool::new("slow")
        .with("execution", json!({ "taskSupport": "optional" }))
        .does(MockBehaviour::steps([
            AnswerStep::Gate(gate.clone()),
            created,
        ]));
    let server = MockServer::legacy(Revision::V2025_11_25)
        .with_tasks()
        .with_rule("tasks/get", MockBehaviour::result(task))
        .tool("echo", MockBehaviour::echo())
        .with(slow);
    let mut bench = HandoverBench::new(server).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let calling = tokio::spawn({
        let client = client.clone();
        let params = json!({ "name": "slow", "arguments": {}, "task": { "ttl": 600_000 } });
        async move { client.ask("tools/call", params).await }
    });
    wait_until_async("the call at the server", async || {
        (bench.mock_server.requests_of("tools/call").len() == 1).then_some(())
    })
    .await;
    let own = last_session(&bench, "tools/call");
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    gate.open();
    let created = within_test_timeout("the task", calling).await.unwrap();
    let about = json!({ "taskId": created.unwrap().result()["task"]["taskId"] });
    check_after_reload(&bench, &client, about, own).await;
    bench.end();
}

/// The parameters of a call of the reference server's research, which becomes a task.
fn research(arguments: &Value) -> Value {
    json!({ "name": RESEARCH, "arguments": arguments, "task": { "ttl": 60_000 } })
}

/// weir in front of the reference server, which knows a task only in the session of its call.
fn weir_over_everything(url: &str, settings: &str) -> Value {
    json!({
        "upstreams": { "peer": { "url": url, "headers": { "x-settings": settings } } },
        "endpoints": { "/mcp": { "upstream": "peer" } },
        "drain": "60s",
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_a_task_of_a_replaced_upstream_is_fetched_in_the_process_before() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::Everything.over_http();
    let weir = Weir::with_config(weir_over_everything(&url, "before"));
    weir.wait_until_listed("/mcp", &[RESEARCH]);
    let able = json!({ "elicitation": {} });
    let endpoint = weir.url("/mcp");
    let client = CheckedClient::with_capabilities(&endpoint, Revision::V2025_11_25, able).await;
    let arguments = json!({ "topic": "python", "ambiguous": true });
    let begun = client.ask("tools/call", research(&arguments)).await;
    let about = json!({ "taskId": begun.result()["task"]["taskId"] });

    let reloads = || weir.metric("weir_config_reloads_total", &[r#"result="ok""#]);
    let counted = reloads();
    weir.rewrite_config(weir_over_everything(&url, "after"));
    weir.process.signal("HUP");
    wait_until("the reload", || (reloads() > counted).then_some(()));
    // A running call keeps the process before alive.
    let modern = CheckedClient::open(&endpoint, Revision::MODERN).await;
    let long = json!({ "duration": 50, "steps": 50 });
    let tool = "trigger-long-running-operation";
    let mut running = modern.start_call(tool, long, Some(&json!("p"))).await;
    running.next().await.unwrap();
    weir.process.signal("USR2");
    let next = wait_until("the next process", || successors(&weir).first().copied());
    let port = weir.address().port();
    wait_until("the process before to accept no more", || {
        let ports = listening_ports_of_process(weir.process.id());
        (!ports.contains(&port)).then_some(())
    });

    let state = client.ask("tasks/get", about.clone()).await;
    assert!(state.last()["result"].is_object(), "{}", state.last());
    let mut stream = client.start("tasks/result", about).await;
    let result = loop {
        let message = within_test_timeout("the result", stream.next()).await;
        let message = message.unwrap();
        match message["method"].as_str() {
            Some("elicitation/create") => {
                let answer = json!({ "interpretation": "snake" });
                let answer = json!({ "action": "accept", "content": answer });
                let taken = client.raw().respond(&message["id"], answer).await.unwrap();
                assert_eq!(taken.status.as_u16(), 202);
            }
            Some(_) => {}
            None => break message,
        }
    };
    let text = result["result"]["content"][0]["text"].as_str();
    assert!(text.is_some_and(|text| text.contains("snake")), "{result}");
    assert!(!is_gone(weir.process.id()), "it had the task");
    drop(running);
    wait_until("the process before to end", || {
        is_gone(weir.process.id()).then_some(())
    });
    signal(next, "TERM");
    wait_until("the last process to end", || is_gone(next).then_some(()));
}

/// The processes whose environment has this variable with this value.
fn processes_with(variable: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{variable}={value}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let has_variable = |process: std::fs::DirEntry| {
        let id = process.file_name().to_str()?.parse().ok()?;
        let environment = std::fs::read(process.path().join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables
            .any(|variable| variable == wanted.as_bytes())
            .then_some(id)
    };
    processes.filter_map(has_variable).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process_is_held_for_a_call_that_becomes_a_task_in_the_process_before() {
    if !peers_are_enabled() {
        return;
    }
    let config = |settings: &str| {
        let mut peer = ForeignServer::Everything.as_child();
        peer["env"]["WEIR_TEST_SETTINGS"] = json!(settings);
        let endpoint = json!({ "upstream": "peer" });
        json!({ "upstreams": { "peer": peer }, "endpoints": { "/mcp": endpoint } })
    };
    let [before, after] = ["before", "after"].map(|word| format!("{word}-{}", std::process::id()));
    let weir = Weir::with_config(config(&before));
    weir.wait_until_listed("/mcp", &[RESEARCH]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::V2025_11_25).await;
    // Starts the process for clients of this kind, if it is not the one of the lists.
    client.call("echo", json!({ "message": "one" })).await;
    let children = processes_with("WEIR_TEST_SETTINGS", &before);
    assert!(!children.is_empty());
    children.iter().for_each(|child| signal(*child, "STOP"));
    let calling = tokio::spawn({
        let (client, params) = (client.clone(), research(&json!({ "topic": "snakes" })));
        async move { client.ask("tools/call", params).await }
    });
    wait_until("the call", || {
        let calls = weir.metric("weir_upstream_in_flight", &[]);
        (calls > 0.5).then_some(())
    });
    weir.process.signal("USR2");
    let next = wait_until("the next process", || successors(&weir).first().copied());
    children.iter().for_each(|child| signal(*child, "CONT"));
    let begun = within_test_timeout("the task", calling).await.unwrap();
    let about = json!({ "taskId": begun.result()["task"]["taskId"] });
    wait_until("the process before to end", || {
        is_gone(weir.process.id()).then_some(())
    });

    weir.rewrite_config(config(&after));
    signal(next, "HUP");
    wait_until("the child of the new settings", || {
        processes_with("WEIR_TEST_SETTINGS", &after).pop()
    });
    let result = client.ask("tasks/result", about).await;
    assert!(result.text().contains("snakes"), "{}", result.last());
    wait_until("the children to end", || {
        children.iter().all(|child| is_gone(*child)).then_some(())
    });
    signal(next, "TERM");
    wait_until("the last process to end", || is_gone(next).then_some(()));
}
