//! The end of `weir stdio`: by the host, by a signal, and by weir.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer, MockStdio};
use weir_testkit::{TestFolder, mock_server::CallGate};
use weir_wire::{Revision, meta};

use super::stdio_host::{StdioConfigFile, StdioHost};
use crate::harness::{signal, wait_until_async, within_test_timeout};

const NEWEST: Revision = Revision::NEWEST_LEGACY;

/// Starts a server with a call that waits, and a host whose call waits there.
async fn waiting(revision: Revision) -> (MockServer, CallGate, StdioHost, Value) {
    let gate = CallGate::new();
    let server = MockServer::dual()
        .tool("gated", MockBehaviour::gated(&gate))
        .start()
        .await;
    let mut host = StdioHost::open(revision, &[&server.url()]).await;
    let id = host
        .begin(
            "tools/call",
            json!({ "name": "gated", "arguments": { "n": 1 } }),
        )
        .await;
    wait_until_async("the call", async || {
        (server.counts("gated").started > 0).then_some(())
    })
    .await;
    (server, gate, host, id)
}

#[tokio::test]
async fn running_requests_may_end_after_the_end_of_the_input() {
    for revision in [NEWEST, Revision::MODERN] {
        let (_server, gate, mut host, id) = waiting(revision).await;
        host.close();
        gate.open();
        let answer = host.answer(&id).await;
        assert_eq!(
            answer["result"]["content"][0]["text"], r#"{"n":1}"#,
            "{answer}"
        );
        host.end_well().await;
    }
}

#[tokio::test]
async fn input_that_ends_before_the_first_answer_is_answered() {
    let server = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    for revision in [NEWEST, Revision::MODERN] {
        let mut host = StdioHost::start(revision, &[&server.url()]);
        let method = if revision.is_modern() {
            "server/discover"
        } else {
            "initialize"
        };
        let about = json!({ "name": "host", "version": "1" });
        let params = json!({ "protocolVersion": revision.as_str(), "capabilities": {}, "clientInfo": about });
        let id = host.begin(method, params).await;
        host.close();
        assert!(host.answer(&id).await.get("result").is_some());
        host.end_well().await;
    }
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cut_off() {
    for revision in [NEWEST, Revision::MODERN] {
        let (server, _gate, host, _) = waiting(revision).await;
        let (_, code, log) = host.end().await;
        assert_eq!(code, Some(0), "{log}");
        let is_over = || server.counts("gated").cancelled + server.counts("gated").abandoned > 0;
        wait_until_async("the call to be cancelled", async || is_over().then_some(())).await;
    }
}

#[tokio::test]
async fn a_signal_ends_it_as_the_end_of_the_input_does_and_a_second_one_at_once() {
    for name in ["TERM", "INT"] {
        let (_server, gate, mut host, id) = waiting(NEWEST).await;
        signal(host.id(), name);
        gate.open();
        let answer = host.answer(&id).await;
        assert_eq!(
            answer["result"]["content"][0]["text"], r#"{"n":1}"#,
            "{answer}"
        );
        // Standard input is still open.
        assert_eq!(host.next().await, None);
        host.end_well().await;
    }
    let (_server, _gate, mut host, _) = waiting(Revision::MODERN).await;
    // A listen stream that ends shows that the first signal has arrived.
    let id = host
        .begin(
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": true } }),
        )
        .await;
    host.heard("notifications/subscriptions/acknowledged").await;
    signal(host.id(), "TERM");
    host.answer(&id).await;
    signal(host.id(), "TERM");
    let (_, code, log) = host.end().await;
    assert_eq!(code, Some(130), "{log}");
}

#[tokio::test]
async fn silent_server_does_not_delay_the_end_of_stdio() {
    let server = MockServer::legacy(NEWEST)
        .with_rule("*", MockBehaviour::hang())
        .start()
        .await;
    let url = server.url();
    let mut host = StdioHost::start(NEWEST, &[&url]);
    host.begin("initialize", json!({})).await;
    wait_until_async("weir to ask", async || {
        (!server.requests().is_empty()).then_some(())
    })
    .await;
    host.end_well().await;
    let before = server.requests().len();
    let mut host = StdioHost::start(Revision::MODERN, &[&url]);
    host.begin("server/discover", json!({})).await;
    wait_until_async("weir to ask", async || {
        (server.requests().len() > before).then_some(())
    })
    .await;
    signal(host.id(), "TERM");
    // If its input had ended before, the signal would be a second one.
    assert_eq!(host.ended().await, Some(0));
}

#[tokio::test]
async fn a_listen_ends_by_its_result_and_then_is_taken_back() {
    let server = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let mut host = StdioHost::open(Revision::MODERN, &[&server.url()]).await;
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let [kept, given_up] = [
        host.begin("subscriptions/listen", filter.clone()).await,
        host.begin("subscriptions/listen", filter).await,
    ];
    for _ in 0..2 {
        host.heard("notifications/subscriptions/acknowledged").await;
    }
    host.cancel(&given_up).await;
    assert_eq!(host.call("echo", json!({})).await, "{}");
    let (left, code, log) = host.end().await;
    assert_eq!(code, Some(0), "{log}");
    // The stream that the host cancelled itself gets no message.
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(
        (&left[0]["id"], &left[0]["result"]["resultType"]),
        (&kept, &json!("complete")),
        "{left:?}"
    );
    assert_eq!(left[0]["result"]["_meta"][meta::SUBSCRIPTION_ID], kept);
    assert_eq!(
        (&left[1]["method"], &left[1]["params"]["requestId"]),
        (&json!("notifications/cancelled"), &kept),
        "{left:?}"
    );
    // A refused listen has no subscription to cancel.
    let mut host = StdioHost::open(Revision::MODERN, &[&server.url()]).await;
    let refused = host.ask("subscriptions/listen", json!({})).await;
    assert!(refused.get("error").is_some(), "{refused}");
    let (left, ..) = host.end().await;
    assert_eq!(left, Vec::<Value>::new());
}

#[tokio::test]
async fn stdio_ends_if_the_host_closes_its_reading_side() {
    let (_server, _gate, mut host, _) = waiting(NEWEST).await;
    let id = host.id();
    host.close_output();
    // A message makes weir notice that the reader has gone.
    host.say(&json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" }))
        .await;
    within_test_timeout("weir stdio to end", host.ended()).await;
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[tokio::test]
async fn child_processes_end_with_weir_stdio() {
    let folder = TestFolder::new("starts");
    let starts = folder.file("starts");
    let (command, args) = MockStdio::legacy(NEWEST).starts_file(&starts).command();
    let file = StdioConfigFile::new(
        &json!({ "mcpServers": { "own": { "command": command, "args": args } } }),
    );
    let mut host = StdioHost::open(NEWEST, &[file.path()]).await;
    assert!(!host.names().await.is_empty());
    let children = || running_with(starts.to_str().unwrap());
    assert!(children() > 0);
    host.end_well().await;
    wait_until_async("the children to end", async || {
        (children() == 0).then_some(())
    })
    .await;
}

/// Returns the number of processes, except weir, whose command line has this word.
fn running_with(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.split(|byte| *byte == 0)
                .any(|given| given == word.as_bytes())
        })
        .count()
}
