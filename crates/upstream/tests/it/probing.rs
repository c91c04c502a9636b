//! Tests of the era probe: once, remembered, and again when in doubt.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::CapabilityClass;
use weir_core::upstream::Upstream;
use weir_testkit::mock_server::{AnswerStep, CallGate};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{OwnDeadlines, UpstreamProtocol, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;

// Proves R068, E17.
#[tokio::test]
async fn anything_but_a_modern_answer_to_the_probe_leads_to_initialize() {
    let cases = [
        (
            "method not found",
            MockBehaviour::error(-32601, "no", json!({})),
        ),
        (
            "invalid params",
            MockBehaviour::error(-32602, "no", json!({})).with_status(400),
        ),
        (
            "server error",
            MockBehaviour::error(-32000, "no session", json!({})).with_status(400),
        ),
        (
            "400 text",
            MockBehaviour::status(400, "text/plain", "session?"),
        ),
        (
            "404 html",
            MockBehaviour::status(404, "text/html", "<html>"),
        ),
        ("405", MockBehaviour::status(405, "text/plain", "")),
        ("406", MockBehaviour::status(406, "text/plain", "")),
        ("500", MockBehaviour::status(500, "text/plain", "")),
        ("empty result", MockBehaviour::result(json!({}))),
        ("html", MockBehaviour::status(200, "text/html", "<html>")),
        ("202", MockBehaviour::status(202, "text/plain", "")),
        ("reset", MockBehaviour::reset_after(0)),
    ];
    for (name, behaviour) in cases {
        let mock = MockServer::legacy(Revision::V2025_06_18)
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        mock.add_rule("server/discover", 1, behaviour);
        let upstream = upstream(&mock.url());
        let outcome = outcome(call_anonymously(&upstream, "echo", json!({})).await).await;
        outcome
            .end
            .unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        assert_eq!(upstream.health().revision, Some("2025-06-18"), "{name}");
        assert!(
            upstream.carries().has(CapabilityClass::ELICITATION_FORM),
            "{name}: by requests of the server's"
        );
    }
}

// Proves E17.
#[tokio::test]
async fn lost_probes_are_no_proof_of_a_legacy_server_which_is_asked_again_beside_its_calls() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    mock.add_rule("server/discover", 3, MockBehaviour::reset_after(0));
    let upstream = upstream(&mock.url());
    // Meanwhile every call is served, as by a legacy server.
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    assert_eq!(upstream.health().revision, Some("2025-11-25"));
    while upstream.health().revision != Some("2026-07-28") {
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

// Proves E17.
#[tokio::test]
async fn a_modern_server_stays_one_while_probes_of_it_are_lost() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    // An answer that a modern server has no reason for raises doubt.
    mock.add_rule(
        "tools/call",
        1,
        MockBehaviour::error(-32000, "restarting", json!({})).with_status(400),
    );
    mock.add_rule("server/discover", 3, MockBehaviour::reset_after(0));
    failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    assert_eq!(upstream.health().revision, Some("2026-07-28"));
    assert_eq!(mock.requests_of("initialize").len(), 0);
}

// Proves E17.
#[tokio::test]
async fn a_legacy_server_that_never_answers_the_probe_is_served_and_seldom_asked() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    mock.add_rule("server/discover", usize::MAX, MockBehaviour::reset_after(0));
    let upstream = upstream(&mock.url());
    for _ in 0..100 {
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
    }
    assert_eq!(mock.requests_of("initialize").len(), 1);
    assert!(
        mock.requests_of("server/discover").len() < 20,
        "{}",
        mock.requests_of("server/discover").len()
    );
}

/// The longest wait for a call that waits for no probe.
const SOON: Duration = Duration::from_secs(10);

/// Makes an upstream whose probes may take longer than any test.
fn with_long_probes(mock: &MockServer) -> Arc<dyn Upstream> {
    let deadlines = OwnDeadlines {
        probe: Duration::from_secs(300),
        ..OwnDeadlines::default()
    };
    build(UpstreamSettings {
        own_deadlines: deadlines,
        ..settings(&mock.url())
    })
}

// Proves R069, E17.
#[tokio::test]
async fn a_known_server_that_is_silent_on_the_probe_serves_calls_beside_it() {
    let mock = MockServer::legacy(Revision::V2025_06_18)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = with_long_probes(&mock);
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    mock.add_rule("server/discover", usize::MAX, MockBehaviour::hang());
    // An answer without a message raises doubt.
    mock.add_rule(
        "tools/call",
        1,
        MockBehaviour::status(500, "text/plain", "oops"),
    );
    failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    for _ in 0..3 {
        let served = async { text(call_anonymously(&upstream, "echo", json!({})).await).await };
        tokio::time::timeout(SOON, served)
            .await
            .expect("no call waits for a silent server's probe");
    }
    assert_eq!(mock.requests_of("server/discover").len(), 2);
    assert_eq!(mock.requests_of("initialize").len(), 1, "its session stays");
}

// Proves R069, E17.
#[tokio::test]
async fn a_caller_that_leaves_does_not_end_the_probe() {
    let mock = MockServer::legacy(Revision::V2025_06_18)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let gate = CallGate::new();
    let late = MockBehaviour::steps([
        AnswerStep::Gate(gate.clone()),
        AnswerStep::Error(json!({"code": -32601, "message": "no"})),
    ]);
    mock.add_rule("server/discover", usize::MAX, late);
    let upstream = with_long_probes(&mock);
    for _ in 0..2 {
        tokio::select! {
            _ = call_anonymously(&upstream, "echo", json!({})) => panic!("the era is unknown"),
            () = mock.wait_until("the probe", |mock| !mock.requests_of("server/discover").is_empty()) => {}
        }
    }
    gate.open();
    let served = async { text(call_anonymously(&upstream, "echo", json!({})).await).await };
    tokio::time::timeout(SOON, served).await.unwrap();
    assert_eq!(mock.requests_of("server/discover").len(), 1);
}

// Proves R069.
#[tokio::test]
async fn a_call_that_takes_too_long_raises_no_doubt() {
    let mock = MockServer::legacy(Revision::V2025_06_18)
        .tool("echo", MockBehaviour::echo())
        .tool("slow", MockBehaviour::hang())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    let mut slow = outbound("slow", call("slow", json!({}))).await;
    slow.deadlines = short_deadlines();
    let reason = failure(upstream.clone().call(slow).await).await;
    assert_eq!(reason.reason(), "timed_out");
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert_eq!(mock.requests_of("server/discover").len(), 1);
}

// Proves R068, E17.
#[tokio::test]
async fn the_modern_errors_are_proof_of_a_modern_server() {
    let supported = json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
    for (code, data) in [
        (-32020, json!({})),
        (-32021, json!({})),
        (-32022, supported),
    ] {
        let mock = MockServer::modern()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        mock.add_rule(
            "server/discover",
            1,
            MockBehaviour::error(code, "no", data).with_status(400),
        );
        let upstream = upstream(&mock.url());
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
        assert_eq!(mock.requests_of("initialize").len(), 0, "{code}");
        assert_eq!(upstream.health().revision, Some("2026-07-28"), "{code}");
        assert!(
            upstream.carries().has(CapabilityClass::ELICITATION_FORM),
            "{code}"
        );
    }
}

// Proves E03, E14.
#[tokio::test]
async fn absent_server_stays_down() {
    for protocol in [
        UpstreamProtocol::Auto,
        UpstreamProtocol::Modern,
        UpstreamProtocol::Legacy,
    ] {
        let mut mock = MockServer::dual()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let upstream = pinned(&mock.url(), protocol);
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
        mock.stop().await;
        // The first may still have found a connection that was about to close.
        while !upstream.health().down {
            outcome(call_anonymously(&upstream, "echo", json!({})).await)
                .await
                .end
                .unwrap_err();
        }
        for _ in 0..200 {
            // Most of these are answered by weir alone, which is no sign of the server's state.
            outcome(call_anonymously(&upstream, "echo", json!({})).await)
                .await
                .end
                .unwrap_err();
            assert!(upstream.health().down, "{protocol:?}");
        }
        mock.restart().await;
        let mut tries = 0;
        while outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .is_err()
        {
            tries += 1;
            assert!(tries < 1000, "{protocol:?}: it is back");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(!upstream.health().down, "{protocol:?}");
    }
}

// Proves R070.
#[tokio::test]
async fn a_server_of_other_versions_alone_is_not_initialized() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let other =
        MockBehaviour::error(-32022, "no", json!({"supported": ["2027-01-01"]})).with_status(400);
    mock.add_rule("server/discover", usize::MAX, other);
    let failure = failure(call_anonymously(&upstream(&mock.url()), "echo", json!({})).await).await;
    assert_eq!(failure.reason(), "unavailable");
    assert!(failure.message().contains("2027-01-01"), "{failure}");
    assert_eq!(mock.requests_of("initialize").len(), 0);
}

#[tokio::test]
async fn errors_without_era_evidence_do_not_end_the_probe() {
    for (behaviour, reason) in [
        (MockBehaviour::unauthorized(), "unavailable"),
        (MockBehaviour::retry_after(503, 1), "busy"),
        (MockBehaviour::retry_after(429, 1), "limit"),
        (
            MockBehaviour::status(502, "text/html", ""),
            "result_unknown",
        ),
    ] {
        let mock = MockServer::dual()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        mock.add_rule("server/discover", usize::MAX, behaviour);
        let failure =
            failure(call_anonymously(&upstream(&mock.url()), "echo", json!({})).await).await;
        assert_eq!(failure.reason(), reason);
        assert_eq!(mock.requests().len(), 1, "nothing else is asked");
    }
}

/// Such a server has its endpoint behind the first event of a GET stream.
// Proves R078.
#[tokio::test]
async fn after_400_404_and_405_alone_http_sse_is_looked_for() {
    for (status, looked_for) in [
        (400, true),
        (404, true),
        (405, true),
        (406, false),
        (500, false),
    ] {
        let refuses = MockBehaviour::status(status, "text/plain", "POST is for messages");
        let endpoint = MockBehaviour::steps([
            AnswerStep::Raw("event: endpoint\ndata: /messages?session=1\n\n".to_owned()),
            AnswerStep::Hang,
        ]);
        let mock = MockServer::legacy(Revision::V2024_11_05)
            .tool("echo", MockBehaviour::echo())
            .with_rule("server/discover", refuses.clone())
            .with_rule("initialize", refuses)
            .with_rule("GET", endpoint.as_events())
            .start()
            .await;
        let failure =
            failure(call_anonymously(&upstream(&mock.url()), "echo", json!({})).await).await;
        assert_eq!(failure.reason(), "unavailable", "{status}");
        assert_eq!(
            !mock.requests_of("GET").is_empty(),
            looked_for,
            "{status}: {failure}"
        );
        let opened = mock.requests_of("initialize").pop().unwrap();
        assert_eq!(
            opened.path,
            if looked_for {
                "/messages?session=1"
            } else {
                "/mcp"
            },
            "messages go where the first event says"
        );
        assert_eq!(mock.executions("echo"), 0);
    }
    // An error object in the body is an answer of a server that is there.
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    mock.add_rule(
        "initialize",
        1,
        MockBehaviour::error(-32600, "no", json!({})).with_status(400),
    );
    let failure = failure(call_anonymously(&upstream(&mock.url()), "echo", json!({})).await).await;
    assert!(!failure.message().contains("HTTP+SSE"), "{failure}");
}

/// "If the body is empty or is not a recognized modern JSON-RPC error, fall back to `initialize`"
/// (2026-07-28, Streamable HTTP, "Backward Compatibility"). A GET stream without the first event of
/// HTTP+SSE does not hold it up.
#[tokio::test]
async fn server_with_a_silent_get_stream_is_initialized_soon() {
    let silent = MockBehaviour::steps([AnswerStep::Raw(": open\n\n".to_owned()), AnswerStep::Hang]);
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .with_rule(
            "server/discover",
            MockBehaviour::status(404, "text/plain", ""),
        )
        .with_rule("GET", silent.as_events())
        .start()
        .await;
    let upstream = with_long_handshakes(&mock);
    let call = async { outcome(call_anonymously(&upstream, "echo", json!({})).await).await };
    let in_time = tokio::time::timeout(Duration::from_secs(60), call).await;
    in_time.expect("it is initialized").end.unwrap();
    assert_eq!(mock.requests_of("initialize").len(), 1);
}

#[tokio::test]
async fn server_of_http_sse_with_a_late_first_event_is_found_after_it_refused_initialize() {
    let refuses = MockBehaviour::status(405, "text/plain", "");
    let silent = MockBehaviour::steps([AnswerStep::Raw(": open\n\n".to_owned()), AnswerStep::Hang]);
    let late = MockBehaviour::steps([
        AnswerStep::Wait(Duration::from_secs(2)),
        AnswerStep::Raw("event: endpoint\ndata: /messages?session=1\n\n".to_owned()),
        AnswerStep::Hang,
    ]);
    let mock = MockServer::legacy(Revision::V2024_11_05)
        .with_rule("server/discover", refuses.clone())
        .with_rule("initialize", refuses)
        .start()
        .await;
    mock.add_rule("GET", 1, silent.as_events());
    mock.add_rule("GET", usize::MAX, late.as_events());
    let upstream = with_long_handshakes(&mock);
    let is_found = |mock: &MockServer| {
        let all = mock.requests_of("initialize");
        all.iter().any(|one| one.path == "/messages?session=1")
    };
    let calling = async {
        while !is_found(&mock) {
            failure(call_anonymously(&upstream, "echo", json!({})).await).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), calling).await;
    in_time.expect("messages go where the first event says");
    let first = &mock.requests_of("initialize")[0];
    assert_eq!(first.path, "/mcp", "initialize is tried before");
}

/// An upstream with handshakes that may take longer than a test does.
fn with_long_handshakes(mock: &MockServer) -> Arc<dyn Upstream> {
    let own_deadlines = OwnDeadlines {
        probe: Duration::from_secs(3600),
        ..OwnDeadlines::default()
    };
    build(UpstreamSettings {
        own_deadlines,
        ..settings(&mock.url())
    })
}

// Proves R069.
#[tokio::test]
async fn many_calls_share_one_probe() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    let calls = (0..20).map(|_| async {
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap()
    });
    futures_util::future::join_all(calls).await;
    assert_eq!(mock.requests_of("server/discover").len(), 1);
    assert_eq!(
        mock.requests_of("initialize").len(),
        0,
        "the newer era is preferred"
    );
}

// Proves R069.
#[tokio::test]
async fn a_server_that_was_replaced_by_one_of_the_other_era_is_found_out_again() {
    let modern = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let legacy = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let proxy = weir_testkit::FaultProxy::start(modern.address()).await;
    let upstream = upstream(&proxy.url("/mcp"));
    for (server, revision) in [
        (&legacy, "2025-11-25"),
        (&modern, "2026-07-28"),
        (&legacy, "2025-11-25"),
    ] {
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
        proxy.retarget(server.address());
        proxy.reset_all();
        let mut tries = 0;
        while let Err(why) = outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
        {
            tries += 1;
            assert!(tries <= 20, "{revision}: {why:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(upstream.health().revision, Some(revision));
    }
}

#[tokio::test]
async fn a_pinned_protocol_is_not_probed() {
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    outcome(
        call_anonymously(
            &pinned(&mock.url(), UpstreamProtocol::Legacy),
            "echo",
            json!({}),
        )
        .await,
    )
    .await
    .end
    .unwrap();
    assert_eq!(mock.requests_of("server/discover").len(), 0);
    assert_eq!(mock.requests_of("initialize").len(), 1);
}

// Proves R069.
#[tokio::test]
async fn errors_of_the_other_era_raise_doubt() {
    // A legacy server takes the place of a modern one, on the same connections.
    let mock = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    mock.add_rule(
        "tools/call",
        1,
        MockBehaviour::error(-32000, "No session", json!({})).with_status(400),
    );
    mock.add_rule(
        "server/discover",
        1,
        MockBehaviour::error(-32000, "No session", json!({})).with_status(400),
    );
    assert_eq!(
        failure(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .reason(),
        "upstream_error"
    );
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    assert_eq!(upstream.health().revision, Some("2025-11-25"));
    assert_eq!(mock.executions("echo"), 2);
}

#[tokio::test]
async fn an_error_to_initialize_is_not_the_calls_error() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    for refuses in [
        MockBehaviour::error(-32600, "no", json!({})),
        MockBehaviour::error(-32600, "no", json!({})).with_status(400),
    ] {
        mock.add_rule("initialize", 1, refuses);
        let failure =
            failure(call_anonymously(&upstream(&mock.url()), "echo", json!({})).await).await;
        assert_eq!(failure.reason(), "unavailable");
    }
    assert_eq!(mock.executions("echo"), 0);
}
