//! Upstreams that operators inspect, disable, drain, refresh and enable.

use serde_json::{Value, json};
use weir_testkit::mock_server::{CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer, MockStdio};
use weir_wire::Revision;

use super::{OperatorClient, body, config_over};
use crate::audit::{AuditFolder, records};
use crate::harness::{CheckedClient, Weir, wait_until, wait_until_async};

/// Both eras, each by its newest revision.
const ERAS: [Revision; 2] = [Revision::NEWEST_LEGACY, Revision::MODERN];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_upstream_leaves_the_lists_and_calls_of_it_say_why() {
    let gate = CallGate::new();
    let slow = MockBehaviour::gated(&gate);
    let one = MockServer::modern()
        .tool("now", MockBehaviour::text("hello"))
        .tool("slow", slow)
        .start()
        .await;
    let two = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config_over(&[("one", &one), ("two", &two)]));
    weir.wait_until_listed("/mcp", &["one__now", "two__tool_0000"]);
    let ops = OperatorClient::of(&weir);
    for revision in ERAS {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let mut changes = client.open_change_stream().await;
        let running = client.start_call("one__slow", json!({}), None).await;
        wait_until_async("the call", async || {
            (ops.get_json("/admin/calls").await["total"] == 1).then_some(())
        })
        .await;
        let done = ops
            .change(
                "/admin/upstreams/one/disable",
                json!({ "reason": "it misbehaves" }),
            )
            .await;
        assert_eq!(
            (&done["changed"], &done["ended_calls"], &done["expires"]),
            (&json!(true), &json!(1), &Value::Null)
        );
        changes.expect_list_changed().await;
        assert_eq!(
            client.list_tool_names().await,
            ["two__tool_0000"],
            "{revision:?}"
        );
        let cut = running.read_rest().await;
        assert!(
            cut.last()
                .unwrap()
                .to_string()
                .contains("disabled by an operator"),
            "{cut:?}"
        );
        for (path, name) in [("/mcp", "one__now"), ("/mcp", "now"), ("/mcp/one", "now")] {
            let client = CheckedClient::open(&weir.url(path), revision).await;
            let refused = client.call(name, json!({})).await;
            let text = refused.last().to_string();
            assert!(
                text.contains("disabled by an operator"),
                "{path} {name} {revision:?}: {text}"
            );
        }
        let other = client.call("two__tool_0000", json!({ "n": 1 })).await;
        assert_eq!(other.text(), r#"{"n":1}"#);
        let seen = ops.get_json("/admin/upstreams/one").await;
        assert_eq!(
            (&seen["state"], &seen["change"]["reason"]),
            (&json!("disabled"), &json!("it misbehaves"))
        );
        assert_eq!(seen["change"]["by"], "local");
        let disabled = |id: &str| {
            let label = format!("upstream=\"{id}\"");
            weir.metric("weir_upstream_disabled", &[&label]) > 0.5
        };
        assert_eq!((disabled("one"), disabled("two")), (true, false));
        let again = ops.change("/admin/upstreams/one/disable", json!({})).await;
        assert_eq!(again["changed"], false);
        ops.change("/admin/upstreams/one/enable", json!({})).await;
        changes.expect_list_changed().await;
        assert_eq!(client.call("one__now", json!({})).await.text(), "hello");
        assert_eq!(ops.get_json("/admin/upstreams/one").await["state"], "up");
        assert!(!disabled("one"));
    }
    assert_eq!(
        one.executions("now"),
        ERAS.len(),
        "no refused call reached it"
    );
}

/// This is how an operator replaces a process that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_upstream_comes_back_with_another_process() {
    let (command, args) = MockStdio::legacy(Revision::NEWEST_LEGACY).command();
    let one = json!({ "command": command, "args": args });
    let weir = Weir::with_config(json!({ "upstreams": { "one": one } }));
    weir.wait_until_listed("/mcp", &["one__count"]);
    let ops = OperatorClient::of(&weir);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let process = async || {
        let answer = client.call("one__count", json!({})).await;
        answer.result()["structuredContent"]["pid"].as_u64()
    };
    let first = process().await.unwrap();
    let running = client
        .start_call("one__count", json!({ "hang": true }), None)
        .await;
    ops.change("/admin/upstreams/one/disable", json!({})).await;
    running.read_rest().await;
    ops.change("/admin/upstreams/one/enable", json!({})).await;
    wait_until_async("a call of the next process", async || {
        process().await.filter(|pid| *pid != first)
    })
    .await;
    let folder = format!("/proc/{first}");
    let is_gone = || (!std::path::Path::new(&folder).exists()).then_some(());
    wait_until("the end of the first process", is_gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_upstream_ends_its_calls_and_begins_none() {
    let gate = CallGate::new();
    let one = MockServer::modern()
        .tool("now", MockBehaviour::echo())
        .tool("slow", MockBehaviour::gated(&gate))
        .start()
        .await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    weir.wait_until_listed("/mcp", &["one__slow"]);
    let (ops, client) = (
        OperatorClient::of(&weir),
        CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await,
    );
    let running = client.start_call("one__slow", json!({}), None).await;
    wait_until("the call", || (one.executions("slow") == 1).then_some(()));
    ops.change("/admin/upstreams/one/drain", json!({})).await;
    assert_eq!(
        ops.get_json("/admin/upstreams/one").await["state"],
        "draining"
    );
    let refused = client.call("one__now", json!({})).await;
    assert!(
        refused
            .last()
            .to_string()
            .contains("disabled by an operator"),
        "{refused:?}"
    );
    assert!(client.list_tool_names().await.is_empty());
    gate.open();
    let ended = running.read_rest().await;
    assert!(
        ended.last().unwrap()["result"]["isError"] != json!(true),
        "{ended:?}"
    );
    wait_until_async("its end", async || {
        (ops.get_json("/admin/upstreams/one").await["state"] == "drained").then_some(())
    })
    .await;
    assert_eq!((one.executions("slow"), one.executions("now")), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_outlives_reloads_and_ends_when_its_time_is_over() {
    let (one, two) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let folder = AuditFolder::new("admin-expiry");
    let mut config = config_over(&[("one", &one)]);
    config["audit"] = json!({ "file": { "path": folder.file() } });
    let weir = Weir::with_config(config);
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let ops = OperatorClient::of(&weir);
    let done = ops
        .change(
            "/admin/upstreams/one/disable",
            json!({ "ttl": "1h", "reason": "a\nreason" }),
        )
        .await;
    assert!(done["expires"].is_string());
    let mut both = config_over(&[("one", &one), ("two", &two)]);
    both["audit"] = json!({ "file": { "path": folder.file() } });
    // The settings of the upstream change too: the change of the operator must hold for its
    // successor.
    both["upstreams"]["one"]["headers"] = json!({ "x-new": "1" });
    weir.rewrite_config(both);
    weir.wait_until_listed("/mcp", &["two__tool_0000"]);
    assert!(
        !weir
            .list_tools("/mcp")
            .contains(&"one__tool_0000".to_owned())
    );
    let applied = ops.get_json("/admin/config").await;
    assert_eq!(applied["changes"][0]["name"], "one");
    assert_eq!(applied["last_reload"]["result"], "ok");
    ops.change("/admin/upstreams/one/disable", json!({ "ttl": "100ms" }))
        .await;
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    assert_eq!(ops.get_json("/admin/config").await["changes"], json!([]));
    let of = |what: &str| {
        let all = records(&folder.file());
        all.into_iter()
            .find(|record| record["kind"] == "admin" && record["what"] == what)
    };
    let record = wait_until("the records", || of("expire").and(of("disable")));
    assert_eq!(
        (&record["who"], &record["done"]),
        (&json!("local"), &json!(true))
    );
    let detail = record["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("upstream one; until 2") && detail.ends_with("; a reason"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_walks_the_lists_now_and_a_call_can_be_cancelled() {
    // It announces no changes, and would be polled again after a minute.
    let one = MockServer::modern()
        .without_list_changed()
        .tool("hang", MockBehaviour::hang())
        .start()
        .await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    weir.wait_until_listed("/mcp", &["one__hang"]);
    let ops = OperatorClient::of(&weir);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let running = client.start_call("one__hang", json!({}), None).await;
    let call = wait_until_async("the call", async || {
        ops.get_json("/admin/calls").await["calls"].get(0).cloned()
    })
    .await;
    assert_eq!(
        (&call["tool"], &call["upstream"], &call["phase"]),
        (&json!("one__hang"), &json!("one"), &json!("sent"))
    );
    assert_eq!(
        call["principal"],
        json!({ "issuer": null, "subject": null })
    );
    let cancel = format!("/admin/calls/{}/cancel", call["id"].as_str().unwrap());
    ops.change(&cancel, json!({ "reason": "stuck" })).await;
    let ended = running.read_rest().await;
    assert!(
        ended
            .last()
            .unwrap()
            .to_string()
            .contains("An operator cancelled this call"),
        "{ended:?}"
    );
    wait_until_async("its entry to go", async || {
        (ops.get_json("/admin/calls").await["total"] == 0).then_some(())
    })
    .await;
    one.wait_until("the cancel", |server| {
        server.counts("hang").cancelled + server.counts("hang").abandoned == 1
    })
    .await;
    assert_eq!(ops.try_change(&cancel, &json!({})).await.status, 404);
    // Neither the upstream nor weir has failed.
    let counted = |side: &str, labels: &[&str]| {
        let labels = [&["mcp_method_name=\"tools/call\""], labels].concat();
        weir.metric(
            &format!("mcp_{side}_operation_duration_seconds_count"),
            &labels,
        )
    };
    for side in ["client", "server"] {
        wait_until("the cancelled call to be counted", || {
            (counted(side, &["outcome=\"cancelled\""]) == 1.0).then_some(())
        });
        assert_eq!(counted(side, &[]), 1.0, "{side}");
    }
    let calls = ops.get_json("/admin/upstreams/one").await["calls"].clone();
    assert_eq!(calls["failed"], 0, "{calls}");
    let walks = ops.get_json("/admin/upstreams/one").await["catalog"]["walks"]
        .as_u64()
        .unwrap();
    one.set_tools([MockTool::new("other")]);
    ops.change("/admin/upstreams/one/refresh", json!({})).await;
    weir.wait_until_listed("/mcp", &["one__other"]);
    assert!(
        ops.get_json("/admin/upstreams/one").await["catalog"]["walks"]
            .as_u64()
            .unwrap()
            > walks
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_admin_requests_are_refused_and_change_nothing() {
    let one = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    let ops = OperatorClient::of(&weir);
    for (path, status) in [
        ("/admin/upstreams/none", 404),
        ("/upstreams/none", 404),
        ("/admin/upstreams?x=1", 400),
        ("/admin/catalog?endpoint=/none", 404),
        ("/admin/catalog?limit=0", 400),
        ("/admin/catalog?kind=x", 400),
        ("/admin/catalog?after=x", 400),
        ("/admin/calls?limit=x", 400),
        ("/admin/catalog?upstream=none", 404),
        ("/admin/calls?upstream=none", 404),
        ("/admin/catalog?upstream=one", 200),
        ("/admin/calls?upstream=one", 200),
        ("/admin/nothing", 404),
        ("/admin/upstreams/one/disable", 405),
    ] {
        assert_eq!(ops.get(path).await.status, status, "{path}");
    }
    let long = "x".repeat(20_000);
    for (path, wish, status) in [
        ("/admin/upstreams/none/disable", json!({}), 404),
        ("/admin/upstreams/UPPER__/disable", json!({}), 404),
        ("/admin/upstreams/one/disable", json!([]), 400),
        ("/admin/upstreams/one/disable", json!({ "ttl": 5 }), 400),
        ("/admin/upstreams/one/disable", json!({ "ttl": "60d" }), 400),
        (
            "/admin/upstreams/one/disable",
            json!({ "resaon": "x" }),
            400,
        ),
        (
            "/admin/upstreams/one/disable",
            json!({ "reason": long }),
            413,
        ),
        ("/admin/upstreams/one/enable", json!({ "ttl": "5m" }), 400),
        ("/admin/calls/c99/cancel", json!({}), 404),
        ("/admin/upstreams/one/disable?x=all", json!({}), 400),
        ("/admin/upstreams/one/refresh?ttl=5m", json!({}), 400),
    ] {
        let answer = ops.try_change(path, &wish).await;
        assert_eq!(answer.status, status, "{path} {}", body(&answer));
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(said["error"].is_string());
    }
    assert_eq!(ops.get_json("/admin/config").await["changes"], json!([]));
}
