//! A process that runs for long: calls that are tasks, a config that changes, and a host that reads
//! slowly.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::stdio_host::{StdioConfigFile, StdioHost};
use crate::harness::wait_until_async;

const NEWEST: Revision = Revision::NEWEST_LEGACY;

/// Returns a task's state, once it is over.
async fn state_at_its_end(host: &mut StdioHost, task: &Value) -> Value {
    wait_until_async("the task to be over", async || {
        let state = host.ask("tasks/get", json!({ "taskId": task })).await["result"].clone();
        (state["status"] == "completed").then_some(state)
    })
    .await
}

#[tokio::test]
async fn calls_become_tasks_where_the_host_has_them() {
    for server in [
        MockServer::legacy(NEWEST).with_tasks_of(NEWEST),
        MockServer::modern().with_tasks_of(Revision::MODERN),
    ] {
        let server = server.start().await;
        let mut host =
            StdioHost::able(NEWEST, &[&server.url()], json!({ "elicitation": {} })).await;
        let params =
            json!({ "name": "task_done", "arguments": { "n": 1 }, "task": { "ttl": 60_000 } });
        let begun = host.ask("tools/call", params).await;
        let task = begun["result"]["task"]["taskId"].clone();
        assert!(task.is_string(), "{begun}");
        state_at_its_end(&mut host, &task).await;
        let result = host.ask("tasks/result", json!({ "taskId": task })).await;
        assert_eq!(
            result["result"]["content"][0]["text"], r#"{"n":1}"#,
            "{result}"
        );
        host.end_well().await;

        let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let mut host = StdioHost::able(Revision::MODERN, &[&server.url()], able).await;
        let begun = host
            .ask(
                "tools/call",
                json!({ "name": "task_done", "arguments": { "n": 2 } }),
            )
            .await;
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
        let state = state_at_its_end(&mut host, &begun["result"]["taskId"]).await;
        assert_eq!(
            state["result"]["content"][0]["text"], r#"{"n":2}"#,
            "{state}"
        );
        host.end_well().await;
    }
}

#[tokio::test]
async fn stdio_applies_a_changed_config_and_notifies_the_host() {
    let [one, two] =
        ["one", "two"].map(|name| MockServer::legacy(NEWEST).tool(name, MockBehaviour::echo()));
    let (one, two) = (one.start().await, two.start().await);
    let file = StdioConfigFile::new(
        &json!({ "upstreams": { "a": { "url": one.url() } }, "change_window": "50ms" }),
    );
    let mut host = StdioHost::open(NEWEST, &[file.path()]).await;
    assert_eq!(host.names().await, ["a__one"]);
    let both = json!({ "a": { "url": one.url() }, "b": { "url": two.url() } });
    // With keys of a listener, although `weir stdio` has no listener.
    let config = json!({ "upstreams": both, "change_window": "50ms", "listen": "127.0.0.1:1", "admin": { "listen": "127.0.0.1:2" } });
    let next = format!("{}.next", file.path());
    std::fs::write(&next, config.to_string()).unwrap();
    std::fs::rename(&next, file.path()).unwrap();
    host.heard("notifications/tools/list_changed").await;
    wait_until_async("the new tool", async || {
        (host.names().await == ["a__one", "b__two"]).then_some(())
    })
    .await;
    assert_eq!(host.call("b__two", json!({ "n": 1 })).await, r#"{"n":1}"#);
    // A bad config is ignored.
    std::fs::write(file.path(), "upstrems: {}").unwrap();
    assert_eq!(host.call("a__one", json!({ "n": 2 })).await, r#"{"n":2}"#);
    let (_, code, log) = host.end().await;
    assert_eq!(code, Some(0), "{log}");
}

/// Answers wait at the server for a host that does not read, and not in weir.
#[tokio::test]
async fn a_host_that_reads_slowly_gets_everything_and_weir_holds_little() {
    const CALLS: usize = 60;
    const BYTES: usize = 8 << 20;
    let server = MockServer::legacy(NEWEST)
        .tool("large", MockBehaviour::huge(BYTES))
        .start()
        .await;
    let mut host = StdioHost::open(NEWEST, &[&server.url()]).await;
    host.call("large", json!({})).await;
    let mut ids = Vec::new();
    for _ in 0..CALLS {
        ids.push(
            host.begin("tools/call", json!({ "name": "large", "arguments": {} }))
                .await,
        );
    }
    let started = || server.executions("large");
    wait_until_async("all calls", async || (started() == CALLS + 1).then_some(())).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.id())).unwrap();
    for id in ids {
        let known = host.beside.iter().position(|message| message["id"] == id);
        let answer = match known {
            Some(at) => host.beside.remove(at),
            None => host.answer(&id).await,
        };
        assert_eq!(
            answer["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .len(),
            BYTES
        );
    }
    let peak = |status: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<usize>()
            .unwrap()
            << 10
    };
    let after = std::fs::read_to_string(format!("/proc/{}/status", host.id())).unwrap();
    eprintln!(
        "{} MiB, and at the end {} MiB",
        peak(&status) >> 20,
        peak(&after) >> 20
    );
    assert!(
        peak(&after) < CALLS * BYTES / 2,
        "{} MiB",
        peak(&after) >> 20
    );
    host.end_well().await;
}
