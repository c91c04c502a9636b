//! Clients of HTTP+SSE over graceful restarts: their connections stay with the old process until its
//! calls have ended, and they go on with a new connection.

use serde_json::json;
use weir_testkit::mock_server::{CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer, RawSocket};
use weir_wire::Revision;

use super::handover_bench::HandoverBench;
use super::is_gone;
use crate::harness::{
    ForeignClient, SseClient, peers_are_enabled, wait_until, within_test_timeout,
};

fn asking_tool() -> MockTool {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "message": "Who are you?", "requestedSchema": schema });
    MockTool::new("asks").does(MockBehaviour::ask("elicitation/create", form))
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_calls_of_the_process_before_are_answered_and_cancelled_through_the_next() {
    let gate = CallGate::new();
    let held = MockTool::new("held").does(MockBehaviour::gated(&gate));
    let server = MockServer::legacy(Revision::V2025_11_25).tool("echo", MockBehaviour::echo());
    let mut bench = HandoverBench::new(server.with(asking_tool()).with(held)).await;
    let mut client = SseClient::open(&bench.weir, None).await;
    client
        .initialize(&bench.weir, json!({ "elicitation": {} }))
        .await;
    let call = |name: &str| json!({ "name": name, "arguments": {} });
    client
        .request(&bench.weir, 2, "tools/call", call("asks"))
        .await;
    let question = client.next().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    client
        .request(&bench.weir, 3, "tools/call", call("held"))
        .await;
    wait_until("the call", || {
        (bench.mock_server.executions("held") == 1).then_some(())
    });

    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    let pinged = client.ask(&bench.weir, 4, "ping", json!({})).await;
    assert_eq!(pinged["result"], json!({}));
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 3 },
    });
    assert_eq!(client.post(&bench.weir, &cancelled).await.status, 202);
    wait_until("the cancellation", || {
        let counts = bench.mock_server.counts("held");
        (counts.cancelled + counts.abandoned == 1).then_some(())
    });
    let content = json!({ "action": "accept", "content": { "name": "Ada" } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": content });
    assert_eq!(client.post(&bench.weir, &answer).await.status, 202);
    let result = client.next().await.unwrap();
    assert_eq!(result["id"], 2, "{result}");
    assert!(result["result"]["content"].is_array(), "{result}");
    assert_eq!(client.next().await, None, "all calls have ended");

    wait_until("the process before to end", || {
        is_gone(bench.processes[0]).then_some(())
    });
    assert_eq!(client.post(&bench.weir, &cancelled).await.status, 404);
    gate.open();
    bench.end();
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_in_the_process_before_leave_their_network_room_in_the_next() {
    const SESSIONS: usize = 4;
    let server = MockServer::legacy(Revision::V2025_11_25).tool("echo", MockBehaviour::echo());
    // A network may have four sessions, and more as long as others are free.
    let limits = json!({ "sessions": 2 * SESSIONS, "sessions_per_principal": SESSIONS });
    let mut bench = HandoverBench::with_settings(server, json!({ "limits": limits })).await;
    let mut clients = Vec::new();
    for round in 0..2 {
        for _ in 0..SESSIONS {
            let mut client = SseClient::open(&bench.weir, None).await;
            client.initialize(&bench.weir, json!({})).await;
            clients.push(client);
        }
        bench.hand_over();
        for mut client in clients.drain(..) {
            assert_eq!(client.next().await, None);
        }
        wait_until("the process before to end", || {
            is_gone(bench.processes[round]).then_some(())
        });
    }
    bench.end();
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metric_of_sessions_is_their_number_after_a_graceful_restart() {
    let server = MockServer::legacy(Revision::V2025_11_25).tool("echo", MockBehaviour::echo());
    let limits = json!({ "body_rate_grace": "60s", "body_time": "60s" });
    let mut bench = HandoverBench::with_settings(server, json!({ "limits": limits })).await;
    let counts = |bench: &HandoverBench, sessions: f64| {
        wait_until(&format!("{sessions} sessions"), || {
            (bench.weir.metric("weir_sessions", &[]) == sessions).then_some(())
        });
    };
    let _moving = bench.client(Revision::V2025_11_25).await;
    let mut ending = SseClient::open(&bench.weir, None).await;
    ending.initialize(&bench.weir, json!({})).await;
    counts(&bench, 2.0);
    // The old process opens a session after the move.
    let about = json!({ "name": "late", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let hello = hello.to_string();
    let (begin, rest) = hello.split_at(20);
    let mut opening = RawSocket::connect(&bench.weir.url("/mcp")).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{begin}",
        bench.weir.address(),
        hello.len()
    );
    opening.write(head.as_bytes()).await.unwrap();

    bench.hand_over();
    assert_eq!(ending.next().await, None);
    counts(&bench, 1.0);
    opening.write(rest.as_bytes()).await.unwrap();
    let answer = within_test_timeout("the answer", opening.read_until("\r\n\r\n")).await;
    let answer = answer.unwrap();
    assert!(answer.contains("mcp-session-id: "), "{answer}");
    counts(&bench, 2.0);
    bench.end();
}

/// The client's `EventSource` connects again, and its program only gets a new path for messages.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_client_over_http_sse_goes_on_and_hears_of_changes_after_a_graceful_restart() {
    if !peers_are_enabled() {
        return;
    }
    let server = MockServer::legacy(Revision::V2025_11_25).tool("echo", MockBehaviour::echo());
    let mut bench = HandoverBench::new(server).await;
    let scenario = ["watch", "--sse", "--timeout", "300000"];
    let mut watcher = ForeignClient::TypeScript1.start(&bench.weir.url("/mcp/sse"), &scenario);
    wait_until("the client to watch", || {
        watcher
            .output()
            .contains(r#""event":"watching""#)
            .then_some(())
    });
    bench.hand_over();
    let code = wait_until("the client to list again", || watcher.wait_for_exit());
    assert_eq!(code, 0, "{}", watcher.output());
    let lists = watcher.output().matches(r#""event":"tools""#).count();
    assert_eq!(lists, 2, "{}", watcher.output());
    bench.end();
}
