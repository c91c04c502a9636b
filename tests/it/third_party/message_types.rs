//! The programs that check weir's messages of a run against the official packages' types
//! (`python/emitted.py`, and `node/emitted.mjs` for tasks of the extension) find violations.

use std::process::Command;

use serde_json::{Value, json};
use weir_testkit::TestFolder;

use crate::harness::{node_peer_command, peers_are_enabled, python_peer_command};

fn said(sender: &str, revision: &str, answered: &str, message: Value) -> Value {
    let mut line = json!({"sender": sender, "revision": revision, "answered": answered});
    line["message"] = message;
    line
}

/// Runs a program over these messages; returns if it succeeded, and its output.
fn judged(lines: &[Value]) -> (bool, String) {
    judged_by(python_peer_command("emitted.py"), lines)
}

fn judged_by(mut program: Command, lines: &[Value]) -> (bool, String) {
    let folder = TestFolder::new("types");
    let text: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
    folder.write("1.jsonl", &text.concat());
    let output = program.arg(folder.path()).output().unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn result(result: Value) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "id": 1});
    message["result"] = result;
    message
}

#[test]
fn message_that_violates_an_sdk_type_fails_the_run() {
    if !peers_are_enabled() {
        return;
    }
    let text = json!([{"type": "text", "text": "a\u{2028}b"}]);
    let good = [
        said(
            "server",
            "2025-06-18",
            "tools/call",
            result(json!({ "content": text })),
        ),
        said(
            "server",
            "2026-07-28",
            "tools/call",
            result(json!({ "content": text, "resultType": "complete" })),
        ),
        said(
            "client",
            "2025-11-25",
            "",
            json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        ),
        said(
            "server",
            "2025-11-25",
            "",
            json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "no JSON"}}),
        ),
    ];
    let (holds, told) = judged(&good);
    assert!(
        holds && told.contains("emitted: 4 passed, 0 failed, 0 skipped"),
        "{told}"
    );
    let bad = [
        (
            "a member of the result is missing",
            said("server", "2025-06-18", "tools/call", result(json!({}))),
        ),
        (
            "a method that its revision does not have",
            said(
                "client",
                "2026-07-28",
                "",
                json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
            ),
        ),
        (
            "a request of the other side",
            said(
                "server",
                "2025-06-18",
                "",
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
            ),
        ),
        (
            "no envelope",
            said(
                "server",
                "2025-06-18",
                "ping",
                json!({"id": 1, "result": {}}),
            ),
        ),
        (
            "no revision",
            said("server", "2025-01-01", "ping", result(json!({}))),
        ),
        (
            "a result of no method",
            said("server", "2026-07-28", "initialize", result(json!({}))),
        ),
    ];
    for (what, line) in bad {
        let (holds, told) = judged(&[good[0].clone(), line]);
        assert!(
            !holds && told.contains("emitted: 1 passed, 1 failed"),
            "{what}: {told}"
        );
    }
}

#[test]
fn message_that_violates_a_tasks_extension_type_fails_the_run() {
    if !peers_are_enabled() {
        return;
    }
    let judged = |lines: &[Value]| judged_by(node_peer_command("emitted.mjs"), lines);
    let state = |resulting: &str, status: &str| {
        json!({
            "resultType": resulting, "taskId": "t", "status": status, "ttlMs": null,
            "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
        })
    };
    let told = |params: Value| json!({"jsonrpc": "2.0", "method": "notifications/tasks", "params": params});
    let modern = |sender: &str, answered: &str, message: Value| {
        said(sender, "2026-07-28", answered, message)
    };
    let request = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let good = [
        modern("server", "tools/call", result(state("task", "working"))),
        modern("server", "tasks/get", result(state("complete", "working"))),
        modern(
            "server",
            "tasks/update",
            result(json!({ "resultType": "complete" })),
        ),
        modern(
            "server",
            "subscriptions/listen",
            told(state("complete", "cancelled")),
        ),
        modern(
            "client",
            "",
            request("tasks/cancel", json!({ "taskId": "t" })),
        ),
    ];
    // Messages that are not about tasks of the extension belong to the other program.
    let others = [
        modern("server", "tools/call", result(json!({}))),
        said("server", "2025-11-25", "tasks/get", json!({})),
    ];
    let (holds, printed) = judged(&[&good[..], &others[..]].concat());
    assert!(
        holds && printed.contains("emitted: 5 shapes about tasks of the extension hold, 0 failed"),
        "{printed}"
    );
    let bad = [
        (
            "a task without its times",
            modern(
                "server",
                "tools/call",
                result(json!({"resultType": "task", "taskId": "t"})),
            ),
        ),
        (
            "a state without what it gave",
            modern(
                "server",
                "tasks/get",
                result(state("complete", "completed")),
            ),
        ),
        (
            "news without what is asked",
            modern(
                "server",
                "subscriptions/listen",
                told(state("complete", "input_required")),
            ),
        ),
        (
            "a request about no task",
            modern("client", "", request("tasks/get", json!({}))),
        ),
        (
            "no answers",
            modern(
                "client",
                "",
                request("tasks/update", json!({ "taskId": "t" })),
            ),
        ),
    ];
    for (what, line) in bad {
        let (holds, printed) = judged(&[good[0].clone(), line]);
        assert!(
            !holds && printed.contains("1 shapes about tasks of the extension hold, 1 failed"),
            "{what}: {printed}"
        );
    }
}
