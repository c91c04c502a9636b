//! Calls whose stream broke, at a server that gives the rest of it later.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_testkit::ScriptedServer;
use weir_testkit::scripted_server::{ScriptedRequest, ServerAct, json_answer};
use weir_upstream::UpstreamProtocol;

use crate::fixtures::*;

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// A server whose calls break after an event with an id. It answers as many requests for the rest
/// by `refusal`, and then gives the result.
fn breaking(refusal: u16, times: usize) -> impl Fn(&ScriptedRequest) -> Vec<ServerAct> {
    let (call, asked) = (Mutex::new(Value::Null), AtomicUsize::new(0));
    move |request| {
        let write = |text: String| vec![ServerAct::Write(text.into()), ServerAct::Close];
        let answer = |result: Value| {
            let answer = json!({ "jsonrpc": "2.0", "id": request.id(), "result": result });
            vec![json_answer(200, &answer)]
        };
        if request.head.starts_with("GET") {
            assert!(request.head.contains("last-event-id: e1"));
            if asked.fetch_add(1, Ordering::Relaxed) < times {
                return vec![json_answer(refusal, &json!({}))];
            }
            let id = call.lock().clone();
            let result = json!({ "content": [{ "type": "text", "text": "resumed" }] });
            let rest = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            return write(format!("{EVENTS}id: e2\ndata: {rest}\n\n"));
        }
        match request.method() {
            "initialize" => answer(json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "breaking", "version": "1" },
            })),
            "tools/call" => {
                *call.lock() = request.id().clone();
                write(format!("{EVENTS}id: e1\nretry: 100\ndata:\n\n"))
            }
            _ => vec![json_answer(202, &json!({}))],
        }
    }
}

// Proves R096, R097.
#[tokio::test]
async fn stream_that_the_server_does_not_open_now_is_resumed_later() {
    for status in [429, 503] {
        let server = ScriptedServer::start(breaking(status, 3)).await;
        let upstream = pinned(&server.url(), UpstreamProtocol::Legacy);
        let reply = call_anonymously(&upstream, "t", json!({})).await;
        assert_eq!(text(reply).await, "resumed", "{status}");
        assert_eq!(server.requests_of("tools/call").len(), 1);
    }
}

#[tokio::test]
async fn call_ends_if_the_server_does_not_have_its_stream_any_more() {
    let server = ScriptedServer::start(breaking(404, 1)).await;
    let upstream = pinned(&server.url(), UpstreamProtocol::Legacy);
    let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
    assert_eq!(failure.reason(), "result_unknown");
}

/// A server that asks for a sign of life on the stream of `initialize`, closes it, and gives the
/// rest once it has the answer.
fn breaking_at_initialize() -> impl Fn(&ScriptedRequest) -> Vec<ServerAct> {
    let (id, is_alive) = (Mutex::new(Value::Null), AtomicBool::new(false));
    move |request| {
        let is_in_session = request.head.contains("mcp-session-id: s1");
        let write = |text: String| vec![ServerAct::Write(text.into()), ServerAct::Close];
        if request.head.starts_with("GET") {
            assert!(is_in_session && request.head.contains("last-event-id: i2"));
            if !is_alive.load(Ordering::SeqCst) {
                return vec![json_answer(503, &json!({}))];
            }
            let result = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "breaking", "version": "1" },
            });
            let rest = json!({ "jsonrpc": "2.0", "id": id.lock().clone(), "result": result });
            return write(format!("{EVENTS}id: i3\ndata: {rest}\n\n"));
        }
        match request.method() {
            "initialize" => {
                *id.lock() = request.id().clone();
                let head = EVENTS.replace("\r\n\r\n", "\r\nmcp-session-id: s1\r\n\r\n");
                let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
                write(format!(
                    "{head}id: i1\nretry: 100\ndata:\n\nid: i2\ndata: {ping}\n\n"
                ))
            }
            "tools/call" => {
                let result = json!({ "content": [{ "type": "text", "text": "called" }] });
                let answer = json!({ "jsonrpc": "2.0", "id": request.id(), "result": result });
                vec![json_answer(200, &answer)]
            }
            _ => {
                if *request.id() == "p" && request.body["result"].is_object() && is_in_session {
                    is_alive.store(true, Ordering::SeqCst);
                }
                vec![json_answer(202, &json!({}))]
            }
        }
    }
}

#[tokio::test]
async fn stream_of_initialize_is_resumed_and_a_ping_on_it_answered() {
    let server = ScriptedServer::start(breaking_at_initialize()).await;
    let upstream = pinned(&server.url(), UpstreamProtocol::Legacy);
    let reply = call_anonymously(&upstream, "t", json!({})).await;
    assert_eq!(text(reply).await, "called");
    assert_eq!(server.requests_of("initialize").len(), 1);
}
