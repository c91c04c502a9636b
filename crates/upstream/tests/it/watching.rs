//! Tests of watches: lists page by page, and change notifications.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_core::upstream::{ListKind, ListWatch, Upstream};
use weir_core::{CapabilityClass, FailureKind};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::UpstreamSettings;
use weir_wire::Revision;

use crate::fixtures::*;

async fn names(watch: &mut dyn ListWatch) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = watch.list(ListKind::Tools, cursor).await.unwrap();
        for item in page.items {
            let item: Value = serde_json::from_slice(&item).unwrap();
            names.push(item["name"].as_str().unwrap().to_owned());
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return names,
        }
    }
}

/// Returns a watch, and the upstream it lives with.
async fn watch(mock: &MockServer) -> (Box<dyn ListWatch>, Arc<dyn Upstream>) {
    let upstream = upstream(&mock.url());
    (
        upstream.clone().watch(CapabilityClass::BASE).await.unwrap(),
        upstream,
    )
}

// Proves R145.
#[tokio::test]
async fn every_page_is_walked_with_the_servers_own_cursors() {
    for builder in [
        MockServer::modern(),
        MockServer::legacy(Revision::V2025_11_25),
    ] {
        let mock = builder.tools(1100).page_size(100).start().await;
        let (mut watch, _upstream) = watch(&mock).await;
        let names = names(&mut *watch).await;
        assert_eq!(names.len(), 1100);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1100);
        assert_eq!(mock.requests_of("tools/list").len(), 11);
        assert_eq!(
            watch
                .about()
                .server_info
                .as_deref()
                .map(|info| info.starts_with(b"{")),
            Some(true)
        );
        assert!(
            watch.about().offers.has(ListKind::Tools)
                && watch.about().notifies_of.has(ListKind::Tools)
        );
    }
}

#[tokio::test]
async fn cache_hints_of_a_modern_list_are_passed_on() {
    let mock = MockServer::modern()
        .tools(1)
        .cache_hints(Some((1500, "public")))
        .start()
        .await;
    let page = watch(&mock)
        .await
        .0
        .list(ListKind::Tools, None)
        .await
        .unwrap();
    assert_eq!((page.ttl_ms, page.public, page.hinted), (1500, true, true));
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tools(1)
        .start()
        .await;
    let page = watch(&mock)
        .await
        .0
        .list(ListKind::Tools, None)
        .await
        .unwrap();
    assert_eq!((page.ttl_ms, page.public, page.hinted), (0, false, false));
}

#[tokio::test]
async fn changes_are_heard_also_those_during_a_walk() {
    for builder in [
        MockServer::modern(),
        MockServer::legacy(Revision::V2025_11_25),
    ] {
        let mock = builder.tools(3).start().await;
        let (mut watch, _upstream) = watch(&mock).await;
        mock.wait_until("somebody listens", |mock| mock.listeners() == 1)
            .await;
        mock.notify_list_changed_times(500);
        assert_eq!(names(&mut *watch).await.len(), 3);
        watch.next_change().await.unwrap();
        mock.set_tools(MockTool::numbered(5));
        mock.notify_list_changed();
        while names(&mut *watch).await.len() != 5 {
            watch.next_change().await.unwrap();
        }
        drop(watch);
        mock.wait_until("nobody listens", |mock| mock.listeners() == 0)
            .await;
    }
}

#[tokio::test]
async fn refused_subscription_is_requested_again_and_lists_are_polled_meanwhile() {
    let mock = MockServer::modern().tools(1).start().await;
    let busy = MockBehaviour::error(-32000, "busy", json!({}));
    mock.add_rule("subscriptions/listen", 2, busy);
    assert_polled_until_subscribed(&mock).await;
}

#[tokio::test]
async fn subscription_refused_without_a_message_is_requested_again() {
    let page = "<!doctype html><title>Unavailable</title>";
    for refusal in [
        MockBehaviour::status(503, "text/html", page),
        MockBehaviour::status(501, "text/plain", "not implemented"),
        MockBehaviour::status(404, "text/html", page),
        MockBehaviour::status(200, "text/html", page),
        MockBehaviour::steps([AnswerStep::ResetAfter(0), AnswerStep::Result(json!({}))]),
    ] {
        let mock = MockServer::modern().tools(1).start().await;
        mock.add_rule("subscriptions/listen", 1, refusal);
        assert_polled_until_subscribed(&mock).await;
    }
}

#[tokio::test]
async fn subscription_that_is_not_acknowledged_is_requested_again() {
    let mock = MockServer::modern().tools(1).start().await;
    mock.add_rule("subscriptions/listen", 1, MockBehaviour::hang());
    let upstream = build(UpstreamSettings {
        own_deadlines: list_deadline(Duration::from_secs(3)),
        ..settings(&mock.url())
    });
    let watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    assert_subscribed_later(&mock, watch).await;
}

#[tokio::test]
async fn lists_are_read_before_a_late_acknowledgment_and_once_more_after_it() {
    let acknowledged = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"$id"}}}"#;
    let gate = CallGate::new();
    let late = MockBehaviour::steps([
        AnswerStep::Gate(gate.clone()),
        AnswerStep::Send(acknowledged.to_owned()),
        AnswerStep::Hang,
    ]);
    let mock = MockServer::modern().tools(1).start().await;
    mock.add_rule("subscriptions/listen", 1, late.as_events());
    let (mut watch, _upstream) = watch(&mock).await;
    assert!(watch.about().notifies_of.is_empty());
    assert_eq!(names(&mut *watch).await.len(), 1);
    mock.set_tools(MockTool::numbered(2));
    gate.open();
    let subscribed = tokio::time::timeout(Duration::from_secs(60), watch.next_change());
    let changed = subscribed.await.expect("it is acknowledged").unwrap();
    assert!(changed.is_empty(), "a change may have been missed");
    assert!(watch.about().notifies_of.has(ListKind::Tools));
    assert_eq!(names(&mut *watch).await.len(), 2);
    assert_eq!(mock.requests_of("subscriptions/listen").len(), 1);
}

#[tokio::test]
async fn subscription_that_the_server_ends_with_its_result_is_opened_again() {
    let acknowledged = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"$id"}}}"#;
    for is_brief in [false, true] {
        let gate = CallGate::new();
        let ended = MockBehaviour::steps([
            AnswerStep::Send(acknowledged.to_owned()),
            AnswerStep::Gate(gate.clone()),
            AnswerStep::Result(json!({})),
        ]);
        let mock = MockServer::modern().tools(1).start().await;
        mock.add_rule("subscriptions/listen", 1, ended.as_events());
        let (mut watch, _upstream) = watch(&mock).await;
        assert!(watch.about().notifies_of.has(ListKind::Tools));
        if !is_brief {
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
        gate.open();
        let change = tokio::time::timeout(Duration::from_secs(60), watch.next_change());
        let change = change.await.expect("the end is noted");
        if is_brief {
            // It is opened again after a wait.
            assert_eq!(change.unwrap_err().reason(), "unavailable");
            continue;
        }
        assert!(change.unwrap().is_empty(), "a change may have been missed");
        assert_eq!(mock.requests_of("subscriptions/listen").len(), 2);
        mock.notify_list_changed();
        assert!(watch.next_change().await.unwrap().has(ListKind::Tools));
    }
}

/// Fails unless a server that refuses subscriptions at first is watched.
async fn assert_polled_until_subscribed(mock: &MockServer) {
    let (watch, _upstream) = watch(mock).await;
    assert_subscribed_later(mock, watch).await;
}

async fn assert_subscribed_later(mock: &MockServer, mut watch: Box<dyn ListWatch>) {
    assert!(watch.about().notifies_of.is_empty());
    assert_eq!(names(&mut *watch).await.len(), 1);
    let subscribed = tokio::time::timeout(Duration::from_secs(60), watch.next_change());
    subscribed.await.expect("it is requested again").unwrap();
    assert!(watch.about().notifies_of.has(ListKind::Tools));
    mock.notify_list_changed();
    assert!(watch.next_change().await.unwrap().has(ListKind::Tools));
}

#[tokio::test]
async fn a_change_heard_on_a_calls_own_stream_reaches_the_watch() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .without_get_stream()
        .tool(
            "add",
            MockBehaviour::steps([AnswerStep::Send(changed.to_owned()), AnswerStep::Echo]),
        )
        .start()
        .await;
    let upstream = upstream(&mock.url());
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    assert!(
        watch.about().notifies_of.is_empty(),
        "405 to GET: the list is polled"
    );
    outcome(call_anonymously(&upstream, "add", json!({})).await)
        .await
        .end
        .unwrap();
    assert!(watch.next_change().await.unwrap().has(ListKind::Tools));
}

#[tokio::test]
async fn a_lost_server_ends_the_watch() {
    for builder in [
        MockServer::modern(),
        MockServer::legacy(Revision::V2025_11_25),
    ] {
        let mut mock = builder.tools(1).start().await;
        let (mut watch, _upstream) = watch(&mock).await;
        mock.wait_until("somebody listens", |mock| mock.listeners() == 1)
            .await;
        mock.stop().await;
        let lost = tokio::time::timeout(Duration::from_secs(20), watch.next_change())
            .await
            .unwrap();
        assert_eq!(lost.unwrap_err().reason(), "unavailable");
    }
}

#[tokio::test]
async fn a_watch_has_a_session_of_its_own_and_ends_it() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    names(&mut *watch).await;
    assert_eq!(mock.sessions(), 2);
    let listed = mock.requests_of("tools/list")[0]
        .session()
        .map(str::to_owned);
    assert_ne!(
        listed.as_deref(),
        mock.requests_of("tools/call")[0].session()
    );
    drop(watch);
    mock.wait_until("its session is over", |mock| mock.sessions() == 1)
        .await;
}

#[tokio::test]
async fn server_without_tools_offers_no_tool_list() {
    let mock = MockServer::modern().start().await;
    mock.add_rule(
        "tools/list",
        usize::MAX,
        MockBehaviour::error(-32601, "no", json!({})).with_status(404),
    );
    let failure = watch(&mock)
        .await
        .0
        .list(ListKind::Tools, None)
        .await
        .unwrap_err();
    assert!(
        matches!(failure.kind(), FailureKind::Upstream(error) if error.code == -32601),
        "{failure}"
    );
}

// Proves R019.
#[tokio::test]
async fn tools_with_bad_header_annotations_are_not_offered() {
    let bad =
        r#"{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#;
    let mock = MockServer::modern()
        .tool_json(bad)
        .tool("good", MockBehaviour::echo())
        .start()
        .await;
    assert_eq!(names(&mut *watch(&mock).await.0).await, ["good"]);
}
