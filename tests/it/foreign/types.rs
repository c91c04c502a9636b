//! The program that holds what weir said in a run against the official SDK's types (`python/emitted.py`) finds what is wrong.

use serde_json::{Value, json};

use crate::harness::{needs_peers, python_command};

fn said(sender: &str, revision: &str, answered: &str, message: Value) -> Value {
    json!({"sender": sender, "revision": revision, "answered": answered, "message": message})
}

/// How the program ends over these messages, and what it prints.
fn judged(lines: &[Value]) -> (bool, String) {
    let folder = std::env::temp_dir().join(format!("weir-types-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.join("1.jsonl"), text.concat()).unwrap();
    let output = python_command("emitted.py").arg(&folder).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn result(result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

#[test]
fn what_breaks_a_type_of_the_official_sdk_fails_the_run() {
    if !needs_peers() {
        return;
    }
    let text = json!([{"type": "text", "text": "a\u{2028}b"}]);
    let good = [
        said("server", "2025-06-18", "tools/call", result(json!({ "content": text }))),
        said("server", "2026-07-28", "tools/call", result(json!({ "content": text, "resultType": "complete" }))),
        said("client", "2025-11-25", "", json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})),
        said("server", "2025-11-25", "", json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "no JSON"}})),
    ];
    let (holds, told) = judged(&good);
    assert!(holds && told.contains("emitted: 4 passed, 0 failed, 0 skipped"), "{told}");
    let bad = [
        ("a member of the result is missing", said("server", "2025-06-18", "tools/call", result(json!({})))),
        (
            "a method that its revision does not have",
            said("client", "2026-07-28", "", json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})),
        ),
        (
            "a request of the other side",
            said("server", "2025-06-18", "", json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})),
        ),
        ("no envelope", said("server", "2025-06-18", "ping", json!({"id": 1, "result": {}}))),
        ("no revision", said("server", "2025-01-01", "ping", result(json!({})))),
        ("a result of no method", said("server", "2026-07-28", "initialize", result(json!({})))),
    ];
    for (what, line) in bad {
        let (holds, told) = judged(&[good[0].clone(), line]);
        assert!(!holds && told.contains("emitted: 1 passed, 1 failed"), "{what}: {told}");
    }
}
