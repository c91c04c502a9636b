//! Legacy sessions that move to the next process: their clients notice only a stream that ends.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockServerBuilder, MockTool};
use weir_testkit::{HttpExchange, MockBehaviour, MockServer, MockStdio, RawClient};
use weir_wire::{LogLevel, Revision};

use super::handover_bench::HandoverBench;
use super::{is_gone, successors};
use crate::admin::OperatorClient;
use crate::harness::{
    Weir, begin_gated_call, resume_to_end, signal, wait_until, wait_until_async,
    within_test_timeout,
};

/// The revisions that have sessions over Streamable HTTP.
const REVISIONS: [Revision; 3] = [
    Revision::V2025_03_26,
    Revision::V2025_06_18,
    Revision::V2025_11_25,
];

/// The number of sessions that move at a time.
const SESSIONS: usize = 300;

/// The bytes of an event that the link between two processes does not hold at once.
const EVENT_BYTES: usize = 512 << 10;

fn server() -> MockServerBuilder {
    MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .tool(
            "logs",
            MockBehaviour::log(&[LogLevel::Info, LogLevel::Error]),
        )
        .with_library()
}

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "message": "Who are you?", "requestedSchema": schema })
}

/// Returns the sessions in which a tool was called at the server.
fn called_in(mock_server: &MockServer, tool: &str) -> Vec<String> {
    let calls = mock_server
        .requests_of("tools/call")
        .into_iter()
        .filter(|request| request.tool() == Some(tool));
    calls
        .map(|call| call.session().unwrap_or_default().to_owned())
        .collect()
}

async fn next_of(stream: &mut HttpExchange, method: &str) -> Value {
    loop {
        let message = within_test_timeout("a message", stream.next_message())
            .await
            .unwrap();
        let message = message.unwrap_or_else(|| panic!("the stream ended before {method}"));
        if message["method"] == method {
            return message;
        }
    }
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_moves_with_its_revision_level_subscriptions_and_its_session_at_the_server() {
    for revision in REVISIONS {
        let mut bench = HandoverBench::new(server()).await;
        let client = bench.client(revision).await;
        client
            .ask("logging/setLevel", json!({ "level": "error" }))
            .await
            .unwrap();
        client
            .ask("resources/subscribe", json!({ "uri": "memo:1" }))
            .await
            .unwrap();
        let mut stream = client.get_stream().await.unwrap();
        client.call("echo", json!({ "n": 1 })).await.unwrap();
        bench.mock_server.notify_resource_updated("memo:1");
        next_of(&mut stream, "notifications/resources/updated").await;

        for round in 2..4 {
            bench.hand_over();
            // The stream ends, to be opened again. The lists count as changed once the stream of the
            // server is open again, maybe only by then.
            while let Some(message) = within_test_timeout("its end", stream.next_message())
                .await
                .unwrap()
            {
                let method = message["method"].as_str().unwrap_or_default();
                assert!(method.ends_with("/list_changed"), "{message}");
            }
            let answer = client.call("echo", json!({ "n": round })).await.unwrap();
            assert_eq!(
                answer.text(),
                format!(r#"{{"n":{round}}}"#),
                "{revision}: {:?}",
                answer.status
            );
            let told = client.call("logs", json!({})).await.unwrap();
            let logs: Vec<_> = told
                .messages
                .iter()
                .filter(|told| told["method"] == "notifications/message")
                .collect();
            assert_eq!(
                logs.len(),
                1,
                "only what is as severe as the level of before: {logs:?}"
            );
            stream = client.get_stream().await.unwrap();
            // One notification for changes that may have happened in between, and then one for each
            // change.
            next_of(&mut stream, "notifications/resources/updated").await;
            bench.mock_server.notify_resource_updated("memo:1");
            next_of(&mut stream, "notifications/resources/updated").await;
        }
        let sessions = called_in(&bench.mock_server, "echo");
        assert_eq!(sessions.len(), 3);
        assert!(
            !sessions[0].is_empty() && sessions.iter().all(|one| *one == sessions[0]),
            "{revision}: {sessions:?}"
        );
        let ended = client.delete().await.unwrap();
        assert!(ended.status.is_success(), "{:?}", ended.status);
        assert_eq!(
            client.ask("ping", json!({})).await.unwrap().status,
            404,
            "its end is an end"
        );
        drop(stream);
        bench.end();
    }
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_cancels_reach_calls_that_run_in_the_process_before() {
    let gate = CallGate::new();
    let asks = MockTool::new("asks").does(MockBehaviour::ask("elicitation/create", form()));
    let held = MockTool::new("held").does(MockBehaviour::gated(&gate));
    let mut bench = HandoverBench::new(server().with(asks).with(held)).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let mut asking = client
        .request("tools/call", json!({ "name": "asks", "arguments": {} }))
        .await
        .unwrap();
    let question = next_of(&mut asking, "elicitation/create").await;
    let held = client.clone();
    let (headers, mut envelope) =
        held.envelope("tools/call", json!({ "name": "held", "arguments": {} }));
    envelope["id"] = json!("to-be-cancelled");
    let cancelled = tokio::spawn({
        let held = held.clone();
        async move {
            held.send(http::Method::POST, headers, envelope.to_string())
                .await
                .unwrap()
                .finish()
                .await
        }
    });
    wait_until_async("the call", async || {
        (bench.mock_server.executions("held") == 1).then_some(())
    })
    .await;

    bench.hand_over();
    client
        .notify(
            "notifications/cancelled",
            json!({ "requestId": "to-be-cancelled" }),
        )
        .await
        .unwrap();
    wait_until_async("the cancel", async || {
        let counts = bench.mock_server.counts("held");
        (counts.cancelled + counts.abandoned == 1).then_some(())
    })
    .await;
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    assert!(
        client
            .respond(&question["id"], answer)
            .await
            .unwrap()
            .status
            .is_success()
    );
    let result = within_test_timeout("the result", asking.finish())
        .await
        .unwrap();
    assert!(
        result.last()["result"]["content"].is_array(),
        "{:?}",
        result.last()
    );
    gate.open();
    drop(within_test_timeout("the end", cancelled).await.unwrap());
    bench.end();
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_resumed_in_the_next_process_while_its_call_runs_in_the_one_before_and_afterwards()
 {
    let gate = CallGate::new();
    let gated = MockTool::new("gated").does(MockBehaviour::gated_after_progress(&gate));
    let mut bench = HandoverBench::new(server().with(gated)).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let (exchange, first) = begin_gated_call(&client).await;
    bench.hand_over();
    drop(exchange);
    let resuming = client.clone().with_header("last-event-id", &first);
    let resumed = within_test_timeout("GET", resuming.get_stream())
        .await
        .unwrap();
    gate.open();
    assert_eq!(
        within_test_timeout("the rest", resumed.finish())
            .await
            .unwrap()
            .text(),
        r#"{"n":1}"#
    );
    wait_until("the process before to end", || {
        is_gone(bench.processes[0]).then_some(())
    });
    for _ in 0..2 {
        let again = within_test_timeout(
            "the rest again",
            resuming.get_stream().await.unwrap().finish(),
        )
        .await
        .unwrap();
        assert_eq!(again.text(), r#"{"n":1}"#, "what was kept has moved");
        bench.hand_over();
    }
    bench.end();
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_cut_at_the_end_of_a_drain_has_an_answer_to_resume() {
    let gate = CallGate::new();
    let gated = MockTool::new("gated").does(MockBehaviour::gated_after_progress(&gate));
    let settings = json!({ "drain": "1s" });
    let mut bench = HandoverBench::with_settings(server().with(gated), settings).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let (read, first) = begin_gated_call(&client).await;
    let (lost, second) = begin_gated_call(&client).await;
    drop(lost);
    bench.hand_over();
    let read = within_test_timeout("the answer", read.finish()).await;
    let read = read.unwrap();
    wait_until("the process before to end", || {
        is_gone(bench.processes[0]).then_some(())
    });
    for answer in [
        read,
        resume_to_end(&client, &first).await,
        resume_to_end(&client, &second).await,
    ] {
        assert_eq!(answer.result()["isError"], true, "{:?}", answer.messages);
        assert!(
            answer.text().contains("the call may have run"),
            "{}",
            answer.text()
        );
    }
    bench.end();
}

/// A call whose stream began before the graceful restart, and one whose stream began after it.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_process_that_is_killed_in_its_drain_has_an_answer_to_resume() {
    let gate = CallGate::new();
    let steps = |first: &[AnswerStep]| {
        let rest = [AnswerStep::Progress(1, 2), AnswerStep::Hang];
        let steps = first.iter().cloned().chain(rest);
        MockBehaviour::steps(steps.collect::<Vec<_>>()).as_events()
    };
    let early = MockTool::new("gated").does(steps(&[]));
    let mut bench = HandoverBench::new(server().with(early)).await;
    let late_server =
        server().with(MockTool::new("gated").does(steps(&[AnswerStep::Gate(gate.clone())])));
    let mut late = HandoverBench::new(late_server).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let late_client = late.client(Revision::V2025_11_25).await;
    let (exchange, first) = begin_gated_call(&client).await;
    let beginning = tokio::spawn({
        let client = late_client.clone();
        async move { begin_gated_call(&client).await }
    });
    wait_until_async("the call at the server", async || {
        (late.mock_server.requests_of("tools/call").len() == 1).then_some(())
    })
    .await;
    bench.hand_over();
    late.hand_over();
    gate.open();
    let (late_exchange, late_first) = within_test_timeout("the stream", beginning).await.unwrap();
    drop((exchange, late_exchange));
    for (bench, client, event) in [(bench, client, first), (late, late_client, late_first)] {
        // The copy of the event is in the next process.
        let resuming = client.clone().with_header("last-event-id", &event);
        let resumed = within_test_timeout("GET", resuming.get_stream())
            .await
            .unwrap();
        assert_eq!(resumed.status, 200);
        signal(bench.processes[0], "KILL");
        let waiting = within_test_timeout("the rest", resumed.finish())
            .await
            .unwrap();
        for answer in [waiting, resume_to_end(&client, &event).await] {
            assert_eq!(answer.result()["isError"], true, "{:?}", answer.messages);
            let text = answer.text();
            assert!(text.contains("the call may have run"), "{text}");
        }
        bench.end();
    }
}

/// The next process does not read, and the link to it does not hold the whole event. So a part of
/// it is on its way when the second signal ends the drain.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_of_a_process_that_a_second_signal_ends_is_resumed_in_the_next_one() {
    let gate = CallGate::new();
    let text = "x".repeat(EVENT_BYTES);
    let params = json!({ "progressToken": "$token", "progress": 2, "message": text });
    let event = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
    let steps = [
        AnswerStep::Progress(1, 2),
        AnswerStep::Gate(gate.clone()),
        AnswerStep::Send(event.to_string()),
        AnswerStep::Hang,
    ];
    let tool = MockTool::new("gated").does(MockBehaviour::steps(steps).as_events());
    let mut bench = HandoverBench::new(server().with(tool)).await;
    let client = bench.client(Revision::V2025_11_25).await;
    let (mut exchange, first) = begin_gated_call(&client).await;
    bench.hand_over();
    let [before, next] = bench.processes[..] else {
        unreachable!("there are two processes");
    };
    signal(next, "STOP");
    gate.open();
    next_of(&mut exchange, "notifications/progress").await;
    signal(before, "TERM");
    wait_until("the first signal", || {
        let log = bench.weir.process.output();
        log.contains("shutdown already in progress").then_some(())
    });
    signal(before, "TERM");
    signal(next, "CONT");
    wait_until("the process before to end", || {
        is_gone(before).then_some(())
    });
    let resuming = client.clone().with_header("last-event-id", &first);
    let mut resumed = within_test_timeout("GET", resuming.get_stream())
        .await
        .unwrap();
    next_of(&mut resumed, "notifications/progress").await;
    bench.end();
}

/// No request runs in the process before and nothing is recorded, so it ends while the sessions are
/// on their way.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_sessions_of_a_process_that_ends_at_once_are_known_to_the_next_one() {
    let mut bench = HandoverBench::new(server()).await;
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        clients.push(bench.client(Revision::V2025_06_18).await);
    }
    // Twice at once: the second process may still receive sessions when the third one begins.
    for hand_overs in [1, 2] {
        (0..hand_overs).for_each(|_| bench.hand_over());
        for client in &clients {
            let answer = client.ask("ping", json!({})).await.unwrap();
            assert_eq!(answer.result(), &json!({}));
        }
    }
    bench.end();
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_an_old_connection_finds_a_session_that_began_in_the_new_process() {
    let mut bench = HandoverBench::new(server()).await;
    let old = RawClient::new(&bench.weir.url("/mcp"))
        .legacy(Revision::V2025_11_25)
        .keeping_connections();
    let old = old.initialize().await.unwrap();
    bench.hand_over();
    let new = bench.client(Revision::V2025_11_25).await;
    // The old connection leads to the old process.
    let (mut headers, envelope) = old.envelope(
        "tools/call",
        json!({ "name": "echo", "arguments": { "n": 1 } }),
    );
    headers.insert("mcp-session-id", new.session().unwrap().parse().unwrap());
    let answer = old
        .send(http::Method::POST, headers, envelope.to_string())
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    assert_eq!(answer.text(), r#"{"n":1}"#, "{:?}", answer.status);
    assert_eq!(
        answer.header("connection"),
        Some("close"),
        "it was the old process that answered"
    );
    // A session that the old process begins now is known to the new one.
    let late = RawClient::new(&bench.weir.url("/mcp"))
        .legacy(Revision::V2025_06_18)
        .initialize()
        .await
        .unwrap();
    assert_eq!(late.ask("ping", json!({})).await.unwrap().status, 200);
    assert_eq!(old.ask("ping", json!({})).await.unwrap().status, 200);
    bench.end();
}

/// The first walk of the next process ends after its client's stream has begun there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_did_not_change_are_not_announced_after_a_graceful_restart() {
    let list = AnswerStep::Result(
        json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
    );
    let slow = MockBehaviour::steps([AnswerStep::Wait(Duration::from_millis(300)), list]);
    let server = MockServer::legacy(Revision::V2025_11_25).with_library();
    let mock_server = server.with_rule("tools/list", slow).start().await;
    let weir = Weir::with_config(json!({ "upstreams": { "one": { "url": mock_server.url() } } }));
    weir.wait_until_listed("/mcp", &["one__echo"]);
    let processes = vec![weir.process.id()];
    let mut bench = HandoverBench {
        weir,
        mock_server,
        processes,
    };
    let client = bench.client(Revision::V2025_11_25).await;
    let before = client.get_stream().await.unwrap();
    assert_eq!(client.list_tools().await.unwrap().len(), 1);
    bench.hand_over();
    within_test_timeout("the end of the stream", before.finish())
        .await
        .unwrap();
    bench.wait_until_it_accepts_alone();
    let stream = client.get_stream().await.unwrap();
    let listed = client.list_tools().await.unwrap();
    assert!(!listed.is_empty());
    // Announcements of changes wait for further ones.
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.delete().await.unwrap();
    let rest = within_test_timeout("the end of the stream", stream.finish());
    let messages = format!("{:?}", rest.await.unwrap());
    assert!(!messages.contains("list_changed"), "{messages}");
    bench.end();
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_processes_move_and_calls_that_run_in_them_end_in_the_process_before() {
    let (command, args) = MockStdio::legacy(Revision::V2025_11_25).command();
    let upstream = json!({ "command": command, "args": args, "session": "principal" });
    let weir = Weir::with_config(json!({
        "upstreams": { "one": upstream },
        "endpoints": { "/mcp": { "upstream": "one" } },
    }));
    weir.wait_until_listed("/mcp", &["pids"]);
    let client = RawClient::new(&weir.url("/mcp")).legacy(Revision::V2025_11_25);
    let (client, _) = client
        .initialize_with(json!({ "elicitation": {} }))
        .await
        .unwrap();
    let mut processes = vec![weir.process.id()];
    let first = client.call("pids", json!({})).await.unwrap().last()["result"].clone();
    assert!(first["structuredContent"].is_object(), "{first}");
    for round in 0..3 {
        // One call that asks, one that runs for a while, and one that is cancelled.
        let asks = json!({ "ask": "elicitation/create", "params": form() });
        let mut asking = client
            .request("tools/call", json!({ "name": "ask", "arguments": asks }))
            .await
            .unwrap();
        let question = next_of(&mut asking, "elicitation/create").await;
        let slow = json!({ "name": "progress", "arguments": { "count": 20, "every_ms": 50 }, "_meta": { "progressToken": 1 } });
        let mut slow = client.request("tools/call", slow).await.unwrap();
        next_of(&mut slow, "notifications/progress").await;
        signal(processes[round], "USR2");
        processes.push(wait_until("the next process", || {
            successors(&weir).get(round).copied()
        }));

        let now = client.call("pids", json!({})).await.unwrap().last()["result"].clone();
        assert_eq!(now, first, "it is the same process");
        let said = json!({ "action": "accept", "content": { "name": "Ada" } });
        assert!(
            client
                .respond(&question["id"], said)
                .await
                .unwrap()
                .status
                .is_success()
        );
        let answer = within_test_timeout("the answer", asking.finish())
            .await
            .unwrap();
        assert_eq!(
            answer.last()["result"]["structuredContent"]["result"]["content"]["name"],
            "Ada",
            "{:?}",
            answer.last()
        );
        let end = within_test_timeout("the end", slow.finish()).await.unwrap();
        assert!(
            end.last()["result"]["content"].is_array(),
            "{:?}",
            end.last()
        );
        if round == 1 {
            // Two earlier processes at once would wait for each other.
            wait_until("a process before to end", || {
                is_gone(processes[round]).then_some(())
            });
        }
    }
    wait_until("all before to end", || {
        processes[..3].iter().all(|id| is_gone(*id)).then_some(())
    });
    assert_eq!(
        client.call("pids", json!({})).await.unwrap().last()["result"],
        first
    );
    let id: u32 = first["structuredContent"]["own"]
        .to_string()
        .parse()
        .unwrap();
    signal(processes[3], "TERM");
    wait_until("the last process to end", || {
        is_gone(processes[3]).then_some(())
    });
    wait_until("its child to end with it", || is_gone(id).then_some(()));
}

/// weir in front of a child process, and a client whose call runs in the child for some seconds.
async fn begin_call_in_child(config: &Value) -> (Weir, HttpExchange) {
    let weir = Weir::with_config(config.clone());
    weir.wait_until_listed("/mcp", &["progress"]);
    let client = RawClient::new(&weir.url("/mcp")).legacy(Revision::V2025_11_25);
    let (client, _) = client.initialize_with(json!({})).await.unwrap();
    let arguments = json!({ "count": 50, "every_ms": 100 });
    let slow = json!({
        "name": "progress", "arguments": arguments, "_meta": { "progressToken": 1 },
    });
    let mut slow = client.request("tools/call", slow).await.unwrap();
    next_of(&mut slow, "notifications/progress").await;
    (weir, slow)
}

fn config_of_child() -> Value {
    let (command, args) = MockStdio::legacy(Revision::V2025_11_25).command();
    json!({
        "upstreams": { "one": { "command": command, "args": args } },
        "endpoints": { "/mcp": { "upstream": "one" } },
        "drain": "60s",
    })
}

async fn expect_result(slow: HttpExchange) {
    let end = within_test_timeout("the end", slow.finish()).await.unwrap();
    let last = end.last();
    assert!(last["result"]["content"].is_array(), "{last:?}");
    assert_ne!(last["result"]["isError"], true, "{last:?}");
}

/// The call's messages go through the process after, which has the child.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_in_a_moved_child_process_ends_although_the_next_process_is_stopped() {
    let (weir, slow) = begin_call_in_child(&config_of_child()).await;
    weir.process.signal("USR2");
    let next = wait_until("the next process", || successors(&weir).first().copied());
    signal(next, "TERM");
    expect_result(slow).await;
    wait_until("both processes to end", || {
        (is_gone(weir.process.id()) && is_gone(next)).then_some(())
    });
}

/// Waits until the next process has the sessions and child processes of the one before.
fn wait_for_sessions(weir: &Weir) {
    wait_until("the child to move", || {
        let output = weir.process.output();
        output
            .contains("graceful restart: sessions received")
            .then_some(())
    });
}

/// The process before has the call: to the process after, the child is unused.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_in_a_moved_child_process_ends_although_the_next_process_would_end_the_child() {
    let config = {
        let mut config = config_of_child();
        config["upstreams"]["one"]["session"] = json!("principal");
        config["upstreams"]["one"]["limits"] = json!({ "session_idle": "1s" });
        config
    };
    let (weir, slow) = begin_call_in_child(&config).await;
    weir.process.signal("USR2");
    let next = wait_until("the next process", || successors(&weir).first().copied());
    wait_for_sessions(&weir);
    let ops = OperatorClient::of(&weir);
    ops.change("/admin/upstreams/one/drain", json!({})).await;
    assert_eq!(
        ops.get_json("/admin/upstreams/one").await["state"],
        "draining"
    );
    let mut changed = config.clone();
    changed["upstreams"]["one"]["env"] = json!({ "CHANGED": "yes" });
    weir.rewrite_config(changed);
    signal(next, "HUP");
    expect_result(slow).await;
    wait_until("the process before to end", || {
        is_gone(weir.process.id()).then_some(())
    });
    wait_until_async("the end of all calls", async || {
        (ops.get_json("/admin/upstreams/one").await["state"] == "drained").then_some(())
    })
    .await;
    signal(next, "TERM");
    wait_until("the next process to end", || is_gone(next).then_some(()));
}

/// The call's messages go through both processes after.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_in_a_child_process_that_moved_twice_ends_after_the_shorter_drain_of_the_next_process()
{
    let mut config = config_of_child();
    let (weir, slow) = begin_call_in_child(&config).await;
    weir.process.signal("USR2");
    let next = wait_until("the next process", || successors(&weir).first().copied());
    wait_for_sessions(&weir);
    config["drain"] = json!("1s");
    weir.rewrite_config(config);
    signal(next, "USR2");
    let last = wait_until("the last process", || successors(&weir).get(1).copied());
    expect_result(slow).await;
    wait_until("the processes before to end", || {
        (is_gone(weir.process.id()) && is_gone(next)).then_some(())
    });
    signal(last, "TERM");
    wait_until("the last process to end", || is_gone(last).then_some(()));
}
