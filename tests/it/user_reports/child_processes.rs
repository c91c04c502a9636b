//! Servers that weir starts itself: they see no secret of weir, are replaced when they end, and
//! never outlive it.

use std::path::Path;

use serde_json::{Value, json};
use weir_testkit::{MockStdio, TestFolder};
use weir_wire::Revision;

use super::{BOTH, own_error, wait_until_called};
use crate::harness::{CheckedClient, Weir, wait_until, wait_until_async};

fn child(mock: &MockStdio) -> Value {
    let (command, args) = mock.command();
    json!({ "command": command, "args": args })
}

fn mock(revision: Revision) -> MockStdio {
    if revision.is_modern() {
        MockStdio::modern()
    } else {
        MockStdio::legacy(revision)
    }
}

// Proves R280.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_sees_its_own_variables_and_nothing_of_weirs() {
    let mut config = child(&mock(Revision::MODERN));
    config["env"] = json!({ "GIVEN": "on purpose" });
    let weir = Weir::with_upstreams(json!({ "one": config }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let env = client.call("one__env", json!({})).await;
    let env = &env.result()["structuredContent"];
    assert_eq!(env["GIVEN"], "on purpose");
    assert!(env["PATH"].is_string());
    let text = env.to_string();
    assert!(
        !text.contains("CANARY") && !text.contains("RUST_LOG"),
        "{text}"
    );
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_ends_is_started_again_and_its_call_may_have_run() {
    for revision in BOTH {
        let folder = TestFolder::new("starts");
        let starts = folder.file("starts");
        let weir =
            Weir::with_upstreams(json!({ "one": child(&mock(revision).starts_file(&starts)) }));
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
        let lost = client.call("one__exit", json!({ "code": 3 })).await;
        assert_eq!(own_error(&lost)["code"], 1004, "{}", lost.last());
        wait_until_called(&client, "one__echo").await;
        assert_eq!(
            started(&starts),
            2,
            "one child a time, and `exit` was not tried again"
        );
    }
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noisy_stdout_and_stderr_floods_of_a_child_do_not_affect_calls() {
    for revision in BOTH {
        let weir = Weir::with_upstreams(
            json!({ "one": child(&mock(revision).noisy().flood_stderr(2 << 20)) }),
        );
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        assert_eq!(
            client
                .call("one__stderr", json!({ "bytes": 1 << 20 }))
                .await
                .text(),
            r#"{"bytes":1048576}"#
        );
        let large = client.call("one__huge", json!({ "bytes": 5 << 20 })).await;
        assert_eq!(large.text().len(), 5 << 20);
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..50 {
            let client = client.clone();
            calls.spawn(async move {
                let answer = client
                    .call_with_token("one__progress", json!({ "count": 2, "n": n }), &json!("t"))
                    .await;
                assert_eq!(
                    answer.result()["structuredContent"]["n"],
                    n,
                    "a shared child, many calls at once"
                );
            });
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap();
        }
        if !revision.is_modern() {
            assert_eq!(
                client.call("one__ask", json!({ "n": 1 })).await.text(),
                r#"{"n":1}"#,
                "E21"
            );
        }
    }
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_will_not_end_ends_with_weir_and_its_own_children_too() {
    let folder = TestFolder::new("starts");
    let starts = folder.file("starts");
    let stubborn = mock(Revision::NEWEST_LEGACY)
        .ignore_sigterm()
        .grandchild()
        .starts_file(&starts);
    let mut weir = Weir::with_upstreams(json!({ "one": child(&stubborn) }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let pids = client.call("one__pids", json!({})).await;
    let pids = &pids.result()["structuredContent"];
    let pids = [
        pids["own"].as_u64().unwrap(),
        pids["grandchild"].as_u64().unwrap(),
    ];
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    weir.process.stop_gracefully();
    wait_until("the whole group to be gone", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_child_processes_do_not_affect_other_upstreams() {
    let weir = Weir::with_upstreams(json!({
        "missing": { "command": "/nonexistent/program" },
        "dies": { "command": "/bin/false" },
        "mute": child(&mock(Revision::MODERN).hang()),
        "good": child(&mock(Revision::NEWEST_LEGACY).silent_to_discover()),
    }));
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        // The good one is slow to be detected: it does not answer the probe.
        wait_until_async("the good one", async || {
            client
                .list_tool_names()
                .await
                .contains(&"good__echo".to_owned())
                .then_some(())
        })
        .await;
        assert_eq!(
            client.call("good__echo", json!({ "n": 1 })).await.text(),
            r#"{"n":1}"#
        );
        let list = client.ask("tools/list", json!({})).await;
        let told = super::missing_upstreams(&list);
        for id in ["missing", "dies", "mute"] {
            assert!(told.iter().any(|(told, _)| told == id), "{told:?}");
        }
    }
}

fn started(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap().lines().count()
}

fn is_alive(pid: u64) -> bool {
    // A process that ended and is not reaped yet is not alive.
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next())
        .is_some_and(|state| state != 'Z')
}
