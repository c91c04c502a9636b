//! Changes of upstreams: declared and never sent, or sent a thousand times a second.

use std::time::Duration;

use serde_json::json;
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockTool;
use weir_wire::Revision;

use super::{BOTH, both_eras, mock_server, weir_over};
use crate::harness::{CheckedClient, Weir, wait_until_async};

/// A thousand changes, one a millisecond. Few notifications arrive, and after the last of them the
/// list is the latest one.
// Proves R202, D11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_changes_a_second_become_few_and_the_last_one_arrives() {
    for (era, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let mut listening = tokio::task::JoinSet::new();
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            assert_eq!(client.list_tool_names().await.len(), 1);
            let mut stream = client.open_change_stream().await;
            listening.spawn(async move {
                let mut notifications = 0;
                loop {
                    stream.expect_list_changed().await;
                    notifications += 1;
                    if client.list_tool_names().await == ["one__v_1000"] {
                        return notifications;
                    }
                }
            });
        }
        upstream
            .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
            .await;
        let walks = upstream.requests_of("tools/list").len();
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        for version in 1..=1_000 {
            pace.tick().await;
            upstream.set_tools([MockTool::new(&format!("v_{version}"))]);
            upstream.notify_list_changed();
        }
        while let Some(notifications) = listening.join_next().await {
            let notifications = notifications.unwrap();
            assert!(
                notifications <= 30,
                "{era:?}: {notifications} notifications"
            );
        }
        let walks = upstream.requests_of("tools/list").len() - walks;
        assert!(walks <= 30, "{era:?}: {walks} walks");
    }
}

// Proves R203.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invisible_change_is_not_notified() {
    let upstream = MockServer::modern().tools(2).start().await;
    let weir = Weir::with_config(
        json!({ "upstreams": { "one": { "url": upstream.url() } }, "change_window": "1ms" }),
    );
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.list_tool_names().await.len(), 2);
    let mut stream = client.open_change_stream().await;
    upstream
        .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
        .await;
    for real in 1..=3 {
        let walks = upstream.requests_of("tools/list").len();
        upstream.notify_list_changed();
        upstream
            .wait_until("weir looked", |mock_server| {
                mock_server.requests_of("tools/list").len() > walks
            })
            .await;
        upstream.set_tools(MockTool::numbered(2 + real));
        upstream.notify_list_changed();
        // If the first change had been announced, the list would be the old one here, in this round
        // or the next.
        stream.expect_list_changed().await;
        assert_eq!(client.list_tool_names().await.len(), 2 + real);
    }
    let told = weir.metric("weir_list_changed_out_total", &[]);
    assert!((1.0..=3.0).contains(&told), "{told}");
}

// Proves R204.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_upstream_stream_is_reopened_and_missed_changes_are_announced() {
    for (era, builder) in both_eras() {
        let mut upstream = builder.tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for (round, revision) in BOTH.into_iter().enumerate() {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let before = client.list_tool_names().await.len();
            let mut stream = client.open_change_stream().await;
            upstream
                .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
                .await;
            upstream.stop().await;
            upstream.set_tools(MockTool::numbered(before + 1 + round));
            upstream.restart().await;
            stream.expect_list_changed().await;
            wait_until_async(&format!("{era:?}: what changed meanwhile"), async || {
                (client.list_tool_names().await.len() == before + 1 + round).then_some(())
            })
            .await;
        }
    }
}

/// Idle streams, as on a quiet day. `cargo xtask bench` measures how many thousands fit.
// Proves D10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_streams_are_all_held_and_all_hear_of_a_change() {
    const STREAMS: usize = 150;
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "limits": { "streams_per_principal": 2 * STREAMS, "sessions_per_principal": 2 * STREAMS },
    }));
    let mut streams = Vec::new();
    for revision in BOTH {
        for _ in 0..STREAMS {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            streams.push(client.open_change_stream().await);
        }
    }
    let open = |weir: &Weir| weir.metric("weir_streams", &[]);
    assert!(
        (open(&weir) - 2.0 * STREAMS as f64).abs() < 0.1,
        "{}",
        open(&weir)
    );
    upstream
        .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
        .await;
    upstream.set_tools(MockTool::numbered(2));
    upstream.notify_list_changed();
    for stream in &mut streams {
        stream.expect_list_changed().await;
    }
    assert!(
        (open(&weir) - 2.0 * STREAMS as f64).abs() < 0.1,
        "none was dropped: {}",
        open(&weir)
    );
    drop(streams);
    wait_until_async("every stream is given back", async || {
        (open(&weir) < 0.1).then_some(())
    })
    .await;
}

// Proves R163.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_notifications_is_polled() {
    for builder in [
        MockServer::modern().without_list_changed(),
        mock_server(Revision::NEWEST_LEGACY).without_list_changed(),
        mock_server(Revision::NEWEST_LEGACY).without_get_stream(),
    ] {
        let upstream = builder.tools(1).start().await;
        let weir = Weir::with_upstreams(json!({ "one": { "url": upstream.url(), "poll": "1s" } }));
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        assert_eq!(client.list_tool_names().await.len(), 1);
        let mut stream = client.open_change_stream().await;
        upstream.set_tools(MockTool::numbered(3));
        stream.expect_list_changed().await;
        assert_eq!(client.list_tool_names().await.len(), 3);
    }
}

// Proves G02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_is_a_change_and_a_call_in_flight_ends_well() {
    let gate = weir_testkit::mock_server::CallGate::new();
    let gated = weir_testkit::MockBehaviour::gated_after_progress(&gate);
    let old = mock_server(Revision::NEWEST_LEGACY)
        .tool("slow", gated)
        .start()
        .await;
    let kept = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("old", &old), ("kept", &kept)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let legacy = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
    assert_eq!(
        client.list_tool_names().await,
        ["old__slow", "kept__tool_0000"]
    );
    let mut streams = [
        client.open_change_stream().await,
        legacy.open_change_stream().await,
    ];
    let mut call = client
        .start_call("old__slow", json!({ "n": 1 }), Some(&json!(1)))
        .await;
    assert_eq!(
        call.next().await.unwrap()["method"],
        "notifications/progress"
    );
    let (walks, connections) = (
        kept.requests_of("tools/list").len(),
        kept.requests_of("subscriptions/listen").len(),
    );
    weir.rewrite_config(json!({ "upstreams": { "kept": { "url": kept.url() } } }));
    for stream in &mut streams {
        stream.expect_list_changed().await;
    }
    assert_eq!(client.list_tool_names().await, ["kept__tool_0000"]);
    assert_eq!(
        legacy.list_tool_names().await,
        ["kept__tool_0000"],
        "the session lives on"
    );
    assert_eq!(client.call("old__slow", json!({})).await.code(), -32602);
    gate.admit(1);
    let rest = call.read_rest().await;
    assert_eq!(
        rest.last().unwrap()["result"]["content"][0]["text"],
        r#"{"n":1}"#,
        "the call ended as if nothing was"
    );
    old.wait_until("weir left the server", |mock_server| {
        mock_server.sessions() == 0 || mock_server.listeners() == 0
    })
    .await;
    assert_eq!(
        kept.requests_of("tools/list").len(),
        walks,
        "an upstream that did not change is not asked again"
    );
    assert_eq!(
        kept.requests_of("subscriptions/listen").len(),
        connections,
        "and its watch stands"
    );
}

// Proves D04, R090.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_comes_on_exactly_one_stream_of_a_session() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
    assert_eq!(client.list_tool_names().await.len(), 1);
    let older = client.open_change_stream().await;
    let mut newer = client.open_change_stream().await;
    // The newer one replaces the older, which ends without a message.
    assert_eq!(older.read_rest().await, Vec::<serde_json::Value>::new());
    upstream
        .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
        .await;
    // R089: answers do not come there.
    assert!(
        client
            .call("one__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    upstream.set_tools(MockTool::numbered(2));
    upstream.notify_list_changed();
    newer.expect_list_changed().await;
}

// Proves R090, R204.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_missed_by_a_session_are_announced_once_on_its_next_stream() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in [Revision::V2025_03_26, Revision::NEWEST_LEGACY] {
        upstream.set_tools(MockTool::numbered(1));
        upstream.notify_list_changed();
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let listed = |count| {
            let client = client.clone();
            async move {
                wait_until_async("the new list", async || {
                    (client.list_tool_names().await.len() == count).then_some(())
                })
                .await;
            }
        };
        listed(1).await;
        let told = || weir.metric("weir_list_changed_out_total", &[]);
        let before = told();
        let mut stream = client.open_change_stream().await;
        upstream
            .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
            .await;
        upstream.set_tools(MockTool::numbered(2));
        upstream.notify_list_changed();
        stream.expect_list_changed().await;
        drop(stream);
        upstream.set_tools(MockTool::numbered(3));
        upstream.notify_list_changed();
        listed(3).await;
        // The event id is none of weir's, so a stream of its own answers.
        let resumed = client.clone().with_header("last-event-id", "17");
        let mut stream = resumed.open_change_stream().await;
        stream.expect_list_changed().await;
        drop(stream);
        let mut stream = client.open_change_stream().await;
        upstream.set_tools(MockTool::numbered(4));
        upstream.notify_list_changed();
        stream.expect_list_changed().await;
        listed(4).await;
        let told = told() - before;
        assert!(
            (told - 3.0).abs() < 0.1,
            "{revision:?}: once each, and nothing where nothing changed: {told}"
        );
    }
}

// Proves R194, R195, R196, R197, R198, R200.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listen_streams_are_independent_and_carry_only_requested_notifications() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.list_tool_names().await.len(), 1);
    let filter =
        json!({ "notifications": { "promptsListChanged": true, "resourcesListChanged": true } });
    let mut other = client.start("subscriptions/listen", filter).await;
    let first = other.next().await.unwrap();
    assert_eq!(
        first["params"]["notifications"],
        json!({}),
        "R197: nothing that is not honoured"
    );
    let named = {
        let (headers, mut message) = client.raw().envelope(
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": true } }),
        );
        message["id"] = json!("by name");
        client
            .raw()
            .send(http::Method::POST, headers, message.to_string())
    };
    let mut named = named.await.unwrap();
    let mut streams = [
        client.open_change_stream().await,
        client.open_change_stream().await,
    ];
    let gone = client.open_change_stream().await;
    drop(gone);
    upstream
        .wait_until("weir listens", |mock_server| mock_server.listeners() > 0)
        .await;
    for count in 2..4 {
        upstream.set_tools(MockTool::numbered(count));
        upstream.notify_list_changed();
        for stream in &mut streams {
            stream.expect_list_changed().await;
        }
        // R198: a call's notifications are not for a listen stream; the next message there is the
        // next change.
        assert!(
            client
                .call("one__tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
    }
    drop(streams);
    for method in ["subscriptions/acknowledged", "tools/list_changed"] {
        let message = crate::harness::within_test_timeout(method, named.next_message())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(message["method"], format!("notifications/{method}"));
        assert_eq!(
            message["params"]["_meta"][weir_wire::meta::SUBSCRIPTION_ID],
            "by name",
            "R195: in its own type"
        );
    }
    drop(named);
    let mut weir = weir;
    weir.process.signal("TERM");
    // R199, R196: the stream that wanted no notifications got only the end.
    let last = other.read_rest().await;
    assert_eq!(last.len(), 1, "{last:?}");
    assert!(last[0]["result"].is_object());
    assert_eq!(weir.process.wait_for_exit(), Some(0));
}
