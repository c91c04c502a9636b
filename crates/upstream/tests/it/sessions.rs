//! Legacy sessions over HTTP: opened, kept apart, lost, ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::call::{LogMessages, SessionKey};
use weir_core::upstream::Upstream;
use weir_testkit::mock_server::{AnswerStep, CallGate, RecordedRequest};
use weir_testkit::{FakeClock, MockBehaviour, MockServer};
use weir_upstream::{SessionSharing, UpstreamBounds, UpstreamProtocol, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;

async fn as_principal(upstream: &Arc<dyn Upstream>, name: &str, session: Option<u8>) {
    let mut call = call("echo", json!({}));
    call.session = session.map(|byte| SessionKey([byte; 16]));
    let mut outbound = outbound("echo", call).await;
    outbound.principal = principal(Some(name)).await;
    outcome(upstream.clone().call(outbound).await)
        .await
        .end
        .unwrap();
}

async fn legacy() -> MockServer {
    MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await
}

// Proves R075, R076.
#[tokio::test]
async fn a_session_opens_once_and_its_id_is_on_every_later_request() {
    for revision in Revision::LEGACY.into_iter().skip(1) {
        let mock = MockServer::legacy(revision)
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let upstream = upstream(&mock.url());
        for _ in 0..3 {
            outcome(call_anonymously(&upstream, "echo", json!({})).await)
                .await
                .end
                .unwrap();
        }
        let requests = mock.requests();
        let methods: Vec<_> = requests.iter().map(RecordedRequest::method).collect();
        let expected = [
            "server/discover",
            "initialize",
            "notifications/initialized",
            // The GET stream for changes of the lists.
            "",
            "tools/call",
            "tools/call",
            "tools/call",
        ];
        assert_eq!(methods, expected);
        assert_eq!(
            requests[1].message["params"]["protocolVersion"], "2025-11-25",
            "the newest is offered"
        );
        assert_eq!(
            requests[1].message["params"]["capabilities"],
            json!({}),
            "r079"
        );
        assert_eq!(requests[1].session(), None);
        let version = revision.has_version_header().then_some(revision.as_str());
        for request in &requests[2..] {
            assert!(request.session().is_some());
            assert_eq!(request.session(), requests[2].session());
            assert_eq!(request.header("mcp-protocol-version"), version);
            assert_eq!(request.header("mcp-method"), None);
            assert!(
                request
                    .meta()
                    .get("io.modelcontextprotocol/protocolVersion")
                    .is_none()
            );
        }
        assert_eq!(upstream.health().revision, Some(revision.as_str()));
    }
}

// Proves D16.
#[tokio::test]
async fn principals_and_client_sessions_never_share_a_session_unless_the_operator_says_so() {
    let mock = legacy().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
    for (name, session) in [
        ("ann", None),
        ("bob", None),
        ("ann", Some(1)),
        ("ann", Some(2)),
        ("bob", Some(1)),
    ] {
        for _ in 0..2 {
            as_principal(&upstream, name, session).await;
        }
    }
    let sessions: HashSet<_> = mock
        .requests_of("tools/call")
        .iter()
        .map(|request| request.session().unwrap().to_owned())
        .collect();
    assert_eq!(sessions.len(), 5);

    let mock = legacy().await;
    let shared = UpstreamSettings {
        session: SessionSharing::Shared,
        protocol: UpstreamProtocol::Legacy,
        ..settings(&mock.url())
    };
    let upstream = build(shared);
    for (name, session) in [("ann", None), ("bob", Some(1))] {
        as_principal(&upstream, name, session).await;
    }
    assert_eq!(mock.requests_of("initialize").len(), 1);
}

#[tokio::test]
async fn sessions_over_http2_get_calls_beyond_the_streams_of_one_connection() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .http2_streams(4)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = over_http2(&mock.url(), UpstreamProtocol::Legacy);
    // Each session has a standing stream.
    for session in 0..10 {
        as_principal(&upstream, "ann", Some(session)).await;
    }
    mock.wait_until("all listen", |mock| mock.requests_of("GET").len() == 10)
        .await;
    for session in 0..10 {
        as_principal(&upstream, "ann", Some(session)).await;
    }
    assert_eq!(mock.executions("echo"), 20);
    assert_eq!(mock.requests_of("initialize").len(), 10);
    // Four streams on each. Two requests of one moment may open a connection each, of which one is
    // closed unused.
    let connections = mock.connections();
    assert!((3..10).contains(&connections), "{connections}");
}

// Proves E10, R077.
#[tokio::test]
async fn a_lost_session_is_opened_again_once_and_the_call_runs_once() {
    for status in [404, 400, 401, 403, 410] {
        let mock = MockServer::legacy(Revision::V2025_11_25)
            .lost_session_status(status)
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
        mock.drop_sessions();
        let calls = (0..20).map(|_| async {
            outcome(call_anonymously(&upstream, "echo", json!({})).await)
                .await
                .end
                .unwrap()
        });
        futures_util::future::join_all(calls).await;
        assert_eq!(mock.executions("echo"), 21, "{status}: each once");
        let opened = mock.requests_of("initialize");
        assert_eq!(opened.len(), 2, "{status}: single-flight");
        assert_eq!(opened[1].session(), None, "{status}: without the old id");
        let pings = mock.requests_of("ping").len();
        assert_eq!(pings > 0, status != 404, "{status}: {pings} pings");
    }
}

#[tokio::test]
async fn a_refused_call_with_a_living_session_is_the_servers_answer() {
    for (status, reason) in [
        (400, "upstream_error"),
        (401, "unavailable"),
        (403, "unavailable"),
        (410, "upstream_error"),
    ] {
        let mock = legacy().await;
        let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
        mock.add_rule(
            "tools/call",
            1,
            MockBehaviour::error(-32602, "bad", json!({})).with_status(status),
        );
        let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert_eq!(failure.reason(), reason, "{status}");
        assert_eq!(mock.requests_of("ping").len(), 1, "{status}");
        assert_eq!(mock.requests_of("initialize").len(), 1, "{status}");
        assert_eq!(mock.executions("echo"), 0, "{status}");
    }
}

#[tokio::test]
async fn refused_credentials_are_named_after_one_attempt_to_open_a_session() {
    let mock = legacy().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    for method in ["tools/call", "ping", "initialize"] {
        let refusal = MockBehaviour::status(401, "text/plain", "who are you?");
        mock.add_rule(method, 9, refusal);
    }
    let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert!(failure.message().contains("credentials"), "{failure:?}");
    assert_eq!(mock.requests_of("initialize").len(), 2);
    assert_eq!(mock.executions("echo"), 1);
}

// Proves E10.
#[tokio::test]
async fn a_session_lost_twice_in_a_row_fails_the_call() {
    let mock = legacy().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
    mock.add_rule(
        "tools/call",
        9,
        MockBehaviour::status(404, "text/plain", "gone"),
    );
    // On a kept connection a 404 without a request id is no proof by itself.
    mock.add_rule("ping", 9, MockBehaviour::status(404, "text/plain", "gone"));
    let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert_eq!(
        failure.reason(),
        "unavailable",
        "the client never sees the 404"
    );
    assert_eq!(mock.requests_of("tools/call").len(), 2);
}

#[tokio::test]
async fn a_server_that_refuses_the_offered_revision_is_offered_one_that_it_lists_once() {
    let offered = |mock: &MockServer| -> Vec<String> {
        let all = mock.requests_of("initialize").into_iter();
        all.map(|request| request.message["params"]["protocolVersion"].to_string())
            .collect()
    };
    let data = json!({"supported": ["2024-11-05", "2025-03-26", "2099-01-01"]});
    for status in [200, 400] {
        let refuses = MockBehaviour::error(-32602, "Unsupported protocol version", data.clone())
            .with_status(status);
        let mock = MockServer::legacy(Revision::V2025_03_26)
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        mock.add_rule("initialize", 1, refuses.clone());
        let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
        text(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert_eq!(upstream.health().revision, Some("2025-03-26"));
        let both = [r#""2025-11-25""#, r#""2025-03-26""#];
        assert_eq!(offered(&mock), both, "{status}");
        // A server that refuses what it lists is not asked on and on.
        let mock = legacy().await;
        mock.add_rule("initialize", usize::MAX, refuses);
        let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
        let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert_eq!(failure.reason(), "unavailable");
        assert_eq!(offered(&mock), both, "{status}");
    }
}

// Proves E11.
#[tokio::test]
async fn a_server_that_refuses_initialize_is_not_stormed() {
    let mock = legacy().await;
    mock.add_rule(
        "initialize",
        usize::MAX,
        MockBehaviour::status(500, "text/plain", "starting"),
    );
    let upstream = pinned(&mock.url(), UpstreamProtocol::Legacy);
    let calls = (0..50)
        .map(|_| async { failure(call_anonymously(&upstream, "echo", json!({})).await).await });
    futures_util::future::join_all(calls).await;
    let first = mock.requests_of("initialize").len();
    let later = (0..50).map(|_| async {
        failure(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .reason()
    });
    let reasons = futures_util::future::join_all(later).await;
    assert!(
        reasons
            .iter()
            .all(|reason| ["unavailable", "bad_answer"].contains(reason)),
        "{reasons:?}"
    );
    let second = mock.requests_of("initialize").len() - first;
    assert!(second <= 5, "{second} attempts while backing off");
    assert_eq!(mock.requests_of("tools/call").len(), 0);
}

// Proves R106.
#[tokio::test]
async fn request_ids_are_unique_in_a_session() {
    let mock = legacy().await;
    let shared = UpstreamSettings {
        session: SessionSharing::Shared,
        protocol: UpstreamProtocol::Legacy,
        ..settings(&mock.url())
    };
    let upstream = build(shared);
    for _ in 0..20 {
        let calls = (0..20).map(|_| async {
            outcome(call_anonymously(&upstream, "echo", json!({})).await)
                .await
                .end
                .unwrap()
        });
        futures_util::future::join_all(calls).await;
    }
    let ids: Vec<_> = mock
        .requests()
        .iter()
        .filter_map(|request| request.message["id"].as_u64())
        .collect();
    assert!(ids.len() > 400);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
}

// Proves R210, R212.
#[tokio::test]
async fn dropped_call_sends_one_cancellation_with_its_own_id() {
    let gate = CallGate::new();
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("wait", MockBehaviour::gated(&gate))
        .start()
        .await;
    let shared = UpstreamSettings {
        session: SessionSharing::Shared,
        protocol: UpstreamProtocol::Legacy,
        ..settings(&mock.url())
    };
    let upstream = build(shared);
    let kept = tokio::spawn({
        let upstream = upstream.clone();
        async move {
            outcome(call_anonymously(&upstream, "wait", json!({"n": 1})).await)
                .await
                .end
                .unwrap()
        }
    });
    mock.wait_until("the first runs", |mock| mock.executions("wait") == 1)
        .await;
    let dropped = tokio::spawn({
        let upstream = upstream.clone();
        async move { outcome(call_anonymously(&upstream, "wait", json!({"n": 2})).await).await }
    });
    mock.wait_until("the second runs", |mock| mock.executions("wait") == 2)
        .await;
    dropped.abort();
    mock.wait_until("the cancel arrives", |mock| {
        !mock.requests_of("notifications/cancelled").is_empty()
    })
    .await;
    gate.open();
    assert_eq!(kept.await.unwrap()["structuredContent"]["n"], 1);
    let cancels = mock.requests_of("notifications/cancelled");
    assert_eq!(cancels.len(), 1);
    let second = mock.requests_of("tools/call")[1].clone();
    assert_eq!(
        cancels[0].message["params"]["requestId"],
        second.message["id"]
    );
    assert_eq!(cancels[0].session(), second.session());
}

// Proves R210, R211.
#[tokio::test]
async fn a_dropped_modern_call_closes_its_connection_and_sends_nothing() {
    for behaviour in [MockBehaviour::hang(), MockBehaviour::hang_after_progress()] {
        let mock = MockServer::modern().tool("wait", behaviour).start().await;
        let upstream = upstream(&mock.url());
        let dropped = tokio::spawn({
            let upstream = upstream.clone();
            async move { outcome(call_anonymously(&upstream, "wait", json!({})).await).await }
        });
        mock.wait_until("it runs", |mock| mock.executions("wait") == 1)
            .await;
        assert_eq!(mock.open_connections(), 1);
        let before = mock.requests().len();
        dropped.abort();
        mock.wait_until("the connection closes", |mock| mock.open_connections() == 0)
            .await;
        assert_eq!(mock.requests().len(), before);
        assert_eq!(upstream.health().in_flight, 0);
    }
}

#[tokio::test]
async fn unused_sessions_are_ended_and_their_number_is_bounded() {
    let mock = legacy().await;
    let bounds = UpstreamBounds {
        sessions: 3,
        session_idle: Duration::from_millis(80),
        ..UpstreamBounds::default()
    };
    let upstream = build(UpstreamSettings {
        bounds,
        protocol: UpstreamProtocol::Legacy,
        ..settings(&mock.url())
    });
    for n in 0..10 {
        as_principal(&upstream, &format!("p{n}"), None).await;
        assert!(upstream.health().sessions <= 3);
    }
    mock.wait_until("all are ended", |mock| mock.sessions() == 0)
        .await;
    assert_eq!(mock.requests_of("DELETE").len(), 10);
    as_principal(&upstream, "p0", None).await;
    upstream.clone().retire(Duration::from_secs(1)).await;
    assert_eq!(
        mock.sessions(),
        0,
        "a retired upstream leaves nothing behind"
    );
}

#[tokio::test]
async fn a_session_is_used_until_the_end_of_its_call() {
    // A result that comes whole, and one that is streamed.
    for end in [AnswerStep::Echo, AnswerStep::Huge(1 << 20)] {
        let gate = CallGate::new();
        let late = MockBehaviour::steps([AnswerStep::Gate(gate.clone()), end]);
        let mock = MockServer::legacy(Revision::V2025_11_25)
            .tool("late", late)
            .start()
            .await;
        let session_idle = Duration::from_millis(80);
        let bounds = UpstreamBounds {
            session_idle,
            ..UpstreamBounds::default()
        };
        let clock = Arc::new(FakeClock::new());
        let upstream = build_with_clock(
            UpstreamSettings {
                bounds,
                protocol: UpstreamProtocol::Legacy,
                ..settings(&mock.url())
            },
            clock.clone(),
        );
        let call = tokio::spawn({
            let upstream = upstream.clone();
            async move { text(call_anonymously(&upstream, "late", json!({})).await).await }
        });
        mock.wait_until("the call", |mock| {
            !mock.requests_of("tools/call").is_empty()
        })
        .await;
        clock.advance(session_idle * 100);
        gate.open();
        call.await.unwrap();
        // Unused sessions are looked for a few times meanwhile.
        tokio::time::sleep(session_idle * 5).await;
        assert_eq!(mock.sessions(), 1, "it was used a moment ago");
        clock.advance(session_idle);
        mock.wait_until("its end", |mock| mock.sessions() == 0)
            .await;
    }
}

#[tokio::test]
async fn log_level_is_raised_once_for_a_shared_session() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool(
            "log",
            MockBehaviour::log(&[weir_wire::LogLevel::Debug, weir_wire::LogLevel::Error]),
        )
        .start()
        .await;
    let shared = UpstreamSettings {
        session: SessionSharing::Shared,
        protocol: UpstreamProtocol::Legacy,
        ..settings(&mock.url())
    };
    let upstream = build(shared);
    use weir_wire::LogLevel::{Debug, Error, Info};
    let choice = LogMessages::ServerChoice;
    for (wanted, notes) in [
        (choice, 2),
        (LogMessages::From(Error), 1),
        // From now on weir chooses in the server's stead.
        (choice, 1),
        (LogMessages::From(Info), 1),
        (LogMessages::From(Debug), 2),
        (LogMessages::From(Error), 1),
        (choice, 1),
        (LogMessages::None, 0),
    ] {
        let mut call = call("log", json!({}));
        call.log_messages = wanted;
        let outcome = outcome(upstream.clone().call(outbound("log", call).await).await).await;
        assert_eq!(outcome.notes.len(), notes, "{wanted:?}");
    }
    let asked: Vec<_> = mock
        .requests_of("logging/setLevel")
        .iter()
        .map(|r| r.message["params"]["level"].clone())
        .collect();
    assert_eq!(asked, ["error", "info", "debug"]);
}
