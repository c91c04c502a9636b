//! The mock child process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use weir_testkit::{MockStdio, TestFolder};
use weir_wire::{Revision, meta};

struct StdioChild {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl StdioChild {
    fn start(mock: &MockStdio) -> Self {
        let (program, arguments) = mock.command();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("ONLY", "this");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        }
    }

    async fn say(&mut self, message: Value) {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn hear(&mut self) -> Option<Value> {
        self.output
            .next_line()
            .await
            .unwrap()
            .map(|line| serde_json::from_str(&line).unwrap())
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        self.hear().await.unwrap()
    }

    async fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.ask(
            id,
            "tools/call",
            json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 9}}),
        )
        .await
    }
}

#[tokio::test]
async fn both_eras_answer_their_own_opening_alone() {
    let mut modern = StdioChild::start(&MockStdio::modern().tools(2));
    assert_eq!(
        modern.ask(1, "server/discover", json!({})).await["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    assert_eq!(
        modern.ask(2, "initialize", json!({})).await["error"]["code"],
        -32601
    );
    let listed = modern.ask(3, "tools/list", json!({})).await;
    assert_eq!(
        (
            listed["result"]["tools"].as_array().unwrap().len(),
            &listed["result"]["resultType"]
        ),
        (15, &json!("complete"))
    );
    let mut legacy = StdioChild::start(&MockStdio::legacy(Revision::V2025_06_18).noisy());
    for _ in 0..2 {
        let noise = legacy.output.next_line().await.unwrap().unwrap();
        assert!(serde_json::from_str::<Value>(&noise).is_err(), "{noise}");
    }
    assert_eq!(
        legacy.ask(1, "server/discover", json!({})).await["error"]["code"],
        -32601
    );
    let opened = legacy
        .ask(2, "initialize", json!({"protocolVersion": "2025-11-25"}))
        .await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18");
    let mut silent =
        StdioChild::start(&MockStdio::legacy(Revision::V2025_06_18).silent_to_discover());
    silent
        .say(json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}))
        .await;
    assert_eq!(silent.ask(2, "ping", json!({})).await["id"], 2);
}

#[tokio::test]
async fn tools_behave_as_named() {
    let mut mock = StdioChild::start(&MockStdio::legacy(Revision::V2025_11_25));
    let env = mock.call(1, "env", json!({})).await;
    let names: Vec<_> = env["result"]["structuredContent"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(names, ["ONLY", "PATH"]);
    assert_eq!(
        mock.call(2, "progress", json!({"count": 1})).await["params"],
        json!({"progressToken": 9, "progress": 1})
    );
    assert_eq!(mock.hear().await.unwrap()["id"], 2);
    assert_eq!(
        mock.call(3, "log", json!({})).await["method"],
        "notifications/message"
    );
    assert_eq!(mock.hear().await.unwrap()["id"], 3);
    assert_eq!(
        mock.call(4, "add_tool", json!({})).await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(mock.hear().await.unwrap()["id"], 4);
    assert_eq!(
        mock.call(5, "added_0", json!({"a": 1})).await["result"]["structuredContent"],
        json!({"a": 1})
    );
    let question = mock.call(6, "ask", json!({})).await;
    assert_eq!(question["method"], "roots/list");
    mock.say(
        json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32601, "message": "no"}}),
    )
    .await;
    assert_eq!(mock.hear().await.unwrap()["id"], 6);
    mock.say(
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "hang"}}),
    )
    .await;
    mock.say(
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}),
    )
    .await;
    assert_eq!(
        mock.call(8, "huge", json!({"bytes": 100_000})).await["id"],
        8
    );
    assert_eq!(
        mock.call(9, "nobody", json!({})).await["error"]["code"],
        -32602
    );
    mock.say(json!({"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": {"name": "exit", "arguments": {"code": 5}}})).await;
    assert_eq!(mock.hear().await, None);
    assert_eq!(mock.child.wait().await.unwrap().code(), Some(5));
}

#[tokio::test]
async fn modern_listeners_are_notified_by_id() {
    let mut mock = StdioChild::start(&MockStdio::modern());
    let opening = mock
        .ask(
            1,
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        )
        .await;
    assert_eq!(opening["params"]["_meta"][meta::SUBSCRIPTION_ID], 1);
    let told = mock.call(3, "add_tool", json!({})).await;
    assert_eq!(
        (
            &told["method"],
            &told["params"]["_meta"][meta::SUBSCRIPTION_ID]
        ),
        (&json!("notifications/tools/list_changed"), &json!(1))
    );
}

#[tokio::test]
async fn starts_are_counted_stderr_is_flooded_and_requests_run_out() {
    let folder = TestFolder::new("starts");
    let file = folder.file("starts");
    let mock = MockStdio::modern()
        .flood_stderr(12_345)
        .exit_after(2)
        .starts_file(&file);
    for _ in 0..2 {
        let mut mock = StdioChild::start(&mock);
        let mut flooded = vec![0; 12_345];
        mock.child
            .stderr
            .as_mut()
            .unwrap()
            .read_exact(&mut flooded)
            .await
            .unwrap();
        assert_eq!(mock.call(1, "echo", json!({})).await["id"], 1);
        mock.say(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}))
            .await;
        assert_eq!(mock.hear().await, None);
        assert_eq!(mock.child.wait().await.unwrap().code(), Some(3));
    }
    let starts = std::fs::read_to_string(&file).unwrap();
    assert_eq!(starts.lines().count(), 2);
}

#[tokio::test]
async fn sigterm_is_ignored_and_a_grandchild_lives_in_the_group() {
    let mut mock = StdioChild::start(&MockStdio::modern().ignore_sigterm().grandchild());
    let pids = mock.call(1, "pids", json!({})).await["result"]["structuredContent"].clone();
    let own = Pid::from_raw(i32::try_from(pids["own"].as_i64().unwrap()).unwrap());
    assert_eq!(mock.child.id().map(i64::from), pids["own"].as_i64());
    assert!(Path::new(&format!("/proc/{}", pids["grandchild"])).exists());
    kill(own, Signal::SIGTERM).unwrap();
    assert_eq!(mock.call(2, "echo", json!({})).await["id"], 2);
    killpg(own, Signal::SIGKILL).unwrap();
    assert!(!mock.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_hanging_child_reads_nothing_and_an_ordinary_one_ends_with_its_input() {
    let mut hanging = StdioChild::start(&MockStdio::modern().hang());
    let line = format!("{}\n", "x".repeat(1 << 20));
    let mut input = hanging.input;
    let write = tokio::spawn(async move { input.write_all(line.as_bytes()).await });
    let mut ordinary = StdioChild::start(&MockStdio::modern());
    assert_eq!(ordinary.call(1, "echo", json!({})).await["id"], 1);
    drop(ordinary.input);
    assert!(ordinary.child.wait().await.unwrap().success());
    assert!(!write.is_finished());
    hanging.child.kill().await.unwrap();
    assert!(write.await.unwrap().is_err());
}
