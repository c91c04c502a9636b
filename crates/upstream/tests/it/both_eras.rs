//! Servers that speak both eras on one URL: each caller is served in its own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use weir_core::call::{Call, SessionKey};
use weir_core::upstream::Upstream;
use weir_core::{CapabilityClass, Failure};
use weir_testkit::mock_server::{AnswerStep, CallGate, RecordedRequest};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{UpstreamBounds, UpstreamProtocol, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;

/// Makes a call of a client with the session of this number.
async fn ask_in_session(
    upstream: &Arc<dyn Upstream>,
    tool: &str,
    number: u8,
    class: CapabilityClass,
) -> Result<(), Failure> {
    let mut call = Call {
        session: Some(SessionKey([number; 16])),
        ..call(tool, json!({}))
    };
    call.capabilities.class = class.with(CapabilityClass::SESSIONS);
    let reply = upstream.clone().call(outbound(tool, call).await).await;
    outcome(reply).await.end.map(drop)
}

async fn ask_without(upstream: &Arc<dyn Upstream>) {
    outcome(call_anonymously(upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
}

fn is_in_session(request: &RecordedRequest) -> bool {
    request.headers.contains_key("mcp-session-id")
}

/// Returns for each call in turn if it was made in a session.
fn calls(mock: &MockServer) -> Vec<bool> {
    mock.requests_of("tools/call")
        .iter()
        .map(is_in_session)
        .collect()
}

#[tokio::test]
async fn each_caller_is_served_in_its_era_and_the_probe_session_is_ended() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    ask_without(&upstream).await;
    assert_eq!(
        mock.requests_of("initialize").len(),
        0,
        "nobody has asked for it"
    );
    assert!(!upstream.carries().has(CapabilityClass::SESSIONS));
    for _ in 0..2 {
        ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
        ask_without(&upstream).await;
    }
    assert_eq!(calls(&mock), [false, true, false, true, false]);
    assert_eq!(
        mock.requests_of("initialize").len(),
        2,
        "one to find out, and one of the caller's"
    );
    mock.wait_until("the first session to be ended", |mock| mock.sessions() == 1)
        .await;
    let health = upstream.health();
    assert_eq!(
        (health.revision, health.second_revision),
        (Some("2026-07-28"), Some("2025-11-25"))
    );
    assert_eq!(health.sessions, 1);
    assert!(
        upstream.carries().has(CapabilityClass::SESSIONS),
        "lists are kept apart"
    );
    upstream.retire(Duration::ZERO).await;
    assert_eq!(mock.sessions(), 0);
}

/// Finds out if a server has sessions, for a call of a client with one. False if that is known.
pub(crate) async fn find_sessions(upstream: &Arc<dyn Upstream>) -> bool {
    let mut call = Call {
        session: Some(SessionKey([1; 16])),
        ..call("echo", json!({}))
    };
    call.capabilities.class = CapabilityClass::SESSIONS;
    let call = Mutex::new(Some(outbound("echo", call).await));
    let search = upstream
        .clone()
        .find_sessions(&|| call.lock().take().unwrap());
    let is_unknown = search.is_some();
    if let Some(search) = search {
        search.await;
    }
    is_unknown
}

#[tokio::test]
async fn sessions_are_found_before_the_first_call_in_one() {
    let dual = MockServer::dual().tools(1).start().await;
    let modern = MockServer::modern().tools(1).start().await;
    for (mock, has_sessions) in [(dual, true), (modern, false)] {
        let upstream = upstream(&mock.url());
        assert!(!find_sessions(&upstream).await, "its era is unknown");
        let _watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
        assert_eq!(mock.requests_of("initialize").len(), 0);
        assert!(find_sessions(&upstream).await);
        assert_eq!(
            upstream.carries().has(CapabilityClass::SESSIONS),
            has_sessions
        );
        assert!(!find_sessions(&upstream).await);
        assert_eq!(mock.requests_of("initialize").len(), 1);
    }
}

#[tokio::test]
async fn many_first_callers_look_for_the_other_era_once() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    let asking =
        (1..=8).map(|number| ask_in_session(&upstream, "echo", number, CapabilityClass::BASE));
    for asked in futures_util::future::join_all(asking).await {
        asked.unwrap();
    }
    assert!(calls(&mock).iter().all(|in_session| *in_session));
    assert_eq!(mock.requests_of("server/discover").len(), 1);
    let opened = mock.requests_of("initialize").len();
    mock.wait_until("the first session to be ended", |mock| {
        mock.sessions() + 1 == opened
    })
    .await;
}

#[tokio::test]
async fn dual_era_server_without_sessions_is_called_in_the_modern_era() {
    let mock = MockServer::dual()
        .without_sessions()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    for _ in 0..2 {
        ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
    }
    assert_eq!(mock.requests_of("server/discover").len(), 1);
    assert_eq!(mock.requests_of("initialize").len(), 1);
    assert!(
        mock.requests_of("tools/call")
            .iter()
            .all(|request| !request.meta().is_null())
    );
}

// Proves E17.
#[tokio::test]
async fn server_without_sessions_is_probed_once_and_a_lost_probe_is_repeated() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let to_modern = upstream(&mock.url());
    for _ in 0..3 {
        ask_in_session(&to_modern, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
    }
    assert_eq!(mock.requests_of("initialize").len(), 1);
    assert_eq!(mock.executions("echo"), 3);
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    mock.add_rule("initialize", 2, MockBehaviour::reset_after(0));
    let to_both = upstream(&mock.url());
    while to_both.health().second_revision.is_none() {
        ask_in_session(&to_both, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
    }
    let calls = calls(&mock);
    assert_eq!(
        (calls.first(), calls.last()),
        (Some(&false), Some(&true)),
        "the bridge serves meanwhile"
    );
}

#[tokio::test]
async fn calls_do_not_wait_again_for_a_server_that_left_initialize_unanswered() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    mock.add_rule("initialize", 1, MockBehaviour::hang());
    let upstream = upstream(&mock.url());
    for _ in 0..3 {
        ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
        // Longer than the first wait after other failures.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(calls(&mock), [false; 3]);
    assert_eq!(mock.requests_of("initialize").len(), 1);
    // A new watch finds the server to be modern again, so it is probed for sessions again.
    let _watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    while upstream.health().second_revision.is_none() {
        ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
        .await
        .unwrap();
    assert_eq!(calls(&mock).last(), Some(&true));
}

#[tokio::test]
async fn server_that_stops_sessions_is_called_without() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
        .await
        .unwrap();
    mock.drop_sessions();
    mock.add_rule(
        "initialize",
        100,
        MockBehaviour::error(-32601, "no", json!({})),
    );
    for _ in 0..3 {
        ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
            .await
            .unwrap();
    }
    assert_eq!(
        calls(&mock)[2..],
        [false, false, false],
        "one was refused in the lost session before"
    );
    assert_eq!(mock.executions("echo"), 4);
    assert_eq!(upstream.health().second_revision, None);
}

/// A server that has just begun to refuse sessions, and an upstream that knows it to have some.
async fn known_server_that_refuses_sessions() -> (MockServer, Arc<dyn Upstream>) {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
        .await
        .unwrap();
    assert!(upstream.health().second_revision.is_some());
    mock.drop_sessions();
    let refusal = MockBehaviour::error(-32601, "no", json!({}));
    mock.add_rule("initialize", 100, refusal);
    (mock, upstream)
}

#[tokio::test]
async fn refusal_of_a_session_that_is_opened_before_its_calls_is_noted() {
    let (mock, upstream) = known_server_that_refuses_sessions().await;
    let opened = mock.requests_of("initialize").len();
    let mut call = Call {
        session: Some(SessionKey([2; 16])),
        ..call("echo", json!({}))
    };
    call.capabilities.class = CapabilityClass::BASE.with(CapabilityClass::SESSIONS);
    upstream
        .clone()
        .open_client_session(outbound("echo", call).await);
    let noted = async {
        while upstream.health().second_revision.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), noted)
        .await
        .expect("the server is called without sessions");
    for number in [2, 3] {
        ask_in_session(&upstream, "echo", number, CapabilityClass::BASE)
            .await
            .unwrap();
    }
    assert_eq!(mock.requests_of("initialize").len(), opened + 1);
}

#[tokio::test]
async fn refusal_of_a_session_for_lists_is_noted() {
    let (_mock, upstream) = known_server_that_refuses_sessions().await;
    let watch = || upstream.clone().watch(CapabilityClass::SESSIONS);
    assert!(watch().await.is_err());
    assert_eq!(upstream.health().second_revision, None);
    let mut watch = watch().await.unwrap();
    let kind = weir_core::upstream::ListKind::Tools;
    assert_eq!(watch.list(kind, None).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn without_free_sessions_only_callers_without_capabilities_use_the_bridge() {
    let gate = CallGate::new();
    let mock = MockServer::dual()
        .tool("held", MockBehaviour::gated(&gate))
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = build(UpstreamSettings {
        bounds: UpstreamBounds {
            sessions: 1,
            ..UpstreamBounds::default()
        },
        ..settings(&mock.url())
    });
    let holder = upstream.clone();
    let held = tokio::spawn(async move {
        ask_in_session(&holder, "held", 1, CapabilityClass::ELICITATION_FORM).await
    });
    mock.wait_until("the call that holds the session", |mock| {
        mock.executions("held") == 1
    })
    .await;
    ask_in_session(&upstream, "echo", 2, CapabilityClass::BASE)
        .await
        .unwrap();
    assert_eq!(calls(&mock), [true, false]);
    let refused = ask_in_session(&upstream, "echo", 3, CapabilityClass::ELICITATION_FORM)
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "busy");
    gate.open();
    held.await.unwrap().unwrap();
    ask_in_session(&upstream, "echo", 2, CapabilityClass::BASE)
        .await
        .unwrap();
    assert_eq!(
        calls(&mock),
        [true, false, false],
        "an unused session of another client stays"
    );
    ask_in_session(&upstream, "echo", 3, CapabilityClass::ELICITATION_FORM)
        .await
        .unwrap();
    assert_eq!(
        calls(&mock),
        [true, false, false, true],
        "and ends for a client that can be asked"
    );
}

#[tokio::test]
async fn a_pinned_protocol_has_one_era() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    ask_in_session(
        &pinned(&mock.url(), UpstreamProtocol::Modern),
        "echo",
        1,
        CapabilityClass::BASE,
    )
    .await
    .unwrap();
    assert_eq!(mock.requests_of("initialize").len(), 0);
    ask_without(&pinned(&mock.url(), UpstreamProtocol::Legacy)).await;
    assert_eq!(calls(&mock), [false, true]);
}

#[tokio::test]
async fn a_watch_for_clients_with_sessions_lists_in_a_session() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE)
        .await
        .unwrap();
    let kind = weir_core::upstream::ListKind::Tools;
    for (class, in_session) in [
        (CapabilityClass::BASE, false),
        (CapabilityClass::SESSIONS, true),
    ] {
        let mut watch = upstream.clone().watch(class).await.unwrap();
        assert_eq!(watch.list(kind, None).await.unwrap().items.len(), 1);
        assert_eq!(
            mock.requests_of("tools/list").last().map(is_in_session),
            Some(in_session)
        );
    }
    assert_eq!(
        mock.requests_of("initialize")
            .last()
            .map(|request| request.message["params"]["protocolVersion"].clone()),
        Some(json!(Revision::NEWEST_LEGACY.as_str()))
    );
}

#[tokio::test]
async fn tools_are_marked_as_tasks_unless_clients_with_sessions_are_served_in_the_legacy_era() {
    let optional = json!({ "taskSupport": "optional" });
    for (server, mark) in [
        (MockServer::dual(), json!(null)),
        (MockServer::dual().without_sessions(), optional.clone()),
        (MockServer::modern(), optional),
    ] {
        let mock = server.with_tasks().start().await;
        let upstream = upstream(&mock.url());
        let mut watch = upstream.watch(CapabilityClass::BASE).await.unwrap();
        let kind = weir_core::upstream::ListKind::Tools;
        let page = watch.list(kind, None).await.unwrap();
        assert!(!page.items.is_empty());
        for item in page.items {
            let tool: serde_json::Value = serde_json::from_slice(&item).unwrap();
            assert_eq!(tool["execution"], mark, "{tool}");
        }
    }
}

#[tokio::test]
async fn the_revision_that_a_call_was_carried_in_is_noted() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    for (class, revision) in [
        (CapabilityClass::BASE, Revision::MODERN),
        (CapabilityClass::SESSIONS, Revision::NEWEST_LEGACY),
    ] {
        let mut call = Call {
            session: Some(SessionKey([1; 16])),
            ..call("echo", json!({}))
        };
        call.capabilities.class = class;
        let outbound = outbound("echo", call).await;
        let carried_in = outbound.carried_revision.clone();
        assert_eq!(carried_in.revision(), None);
        outcome(upstream.clone().call(outbound).await)
            .await
            .end
            .unwrap();
        assert_eq!(carried_in.revision(), Some(revision));
    }
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_end_the_search_for_sessions() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    ask_without(&upstream).await;
    // Answered only after the caller has left.
    let gate = CallGate::new();
    let opened = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "mock", "version": "1"},
    });
    let late = MockBehaviour::steps([AnswerStep::Gate(gate.clone()), AnswerStep::Result(opened)]);
    mock.add_rule(
        "initialize",
        1,
        late.with_header("mcp-session-id", "of-the-search"),
    );
    mock.add_rule(
        "notifications/initialized",
        1,
        MockBehaviour::status(202, "text/plain", ""),
    );
    let call = ask_in_session(&upstream, "echo", 1, CapabilityClass::BASE);
    tokio::select! {
        _ = call => panic!("the search is not over"),
        () = mock.wait_until("the search", |mock| !mock.requests_of("initialize").is_empty()) => {}
    }
    gate.open();
    let found = async {
        while !upstream.carries().has(CapabilityClass::SESSIONS) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), found)
        .await
        .expect("the search goes on without its caller");
}
