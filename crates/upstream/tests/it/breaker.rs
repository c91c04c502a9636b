//! The circuit breaker of a server with one URL, and its state for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use weir_core::CapabilityClass;
use weir_core::upstream::{CallDeadlines, ListKind, Upstream};
use weir_testkit::accept::listen_on_loopback;
use weir_testkit::mock_server::CallGate;
use weir_testkit::scripted_server::{ServerAct, modern_answer, text_answer};
use weir_testkit::{MockBehaviour, MockServer, ScriptedServer, wait_for_condition};
use weir_upstream::UpstreamProtocol;

use crate::fixtures::*;

/// The failures in a row that open the breaker.
const FAILURES_TO_OPEN: usize = 5;

const PATIENCE: Duration = Duration::from_secs(20);

async fn server() -> MockServer {
    MockServer::modern()
        .tool("hang", MockBehaviour::hang())
        .tool(
            "endless",
            MockBehaviour::endless_progress(Duration::from_millis(20)),
        )
        .tool("echo", MockBehaviour::echo())
        .start()
        .await
}

async fn pass_deadlines(upstream: &Arc<dyn Upstream>, deadlines: CallDeadlines, calls: usize) {
    for _ in 0..calls {
        let reply = call_within(upstream, "hang", deadlines).await;
        assert_eq!(failure(reply).await.reason(), "timed_out");
    }
}

// Proves E03.
#[tokio::test]
async fn breaker_opens_after_five_timeouts_and_stops_requests() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    pass_deadlines(&upstream, short_deadlines(), FAILURES_TO_OPEN).await;
    let health = upstream.health();
    assert!(health.down && health.breaker_open && health.down_changed.is_some());
    let asked = mock.requests_of("tools/call").len();
    let refused = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert_eq!(refused.reason(), "unavailable");
    assert!(refused.retry_delay().is_some());
    assert_eq!(mock.requests_of("tools/call").len(), asked);
    let mut tries = 0;
    while outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .is_err()
    {
        tries += 1;
        assert!(tries < 200, "one call a second is let through");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!upstream.health().down);
}

// Proves E03.
#[tokio::test]
async fn hard_limit_without_any_life_counts_as_well() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    let deadlines = CallDeadlines {
        hard: Duration::from_millis(150),
        ..CallDeadlines::CALL
    };
    pass_deadlines(&upstream, deadlines, FAILURES_TO_OPEN).await;
    assert!(upstream.health().breaker_open);
}

#[tokio::test]
async fn passed_deadline_is_no_sign_that_the_server_is_down() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    for tool in ["hang", "endless"] {
        let late = outcome(hurried(&upstream, tool).await).await.end;
        assert_eq!(late.unwrap_err().reason(), "timed_out", "{tool}");
        let health = upstream.health();
        assert!(!health.down && health.down_changed.is_none(), "{tool}");
        assert!(health.last_error.is_some(), "{tool}");
    }
}

#[tokio::test]
async fn shorter_deadlines_of_an_endpoint_never_open_the_breaker() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    let cut = CallDeadlines::CALL.cut(short_deadlines());
    pass_deadlines(&upstream, cut, 2 * FAILURES_TO_OPEN).await;
    assert!(!upstream.health().breaker_open);
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
}

#[tokio::test]
async fn calls_beside_one_that_reports_progress_never_open_the_breaker() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    let mut endless = call_within(&upstream, "endless", CallDeadlines::CALL).await;
    let reading = tokio::spawn(async move { while endless.next().await.is_some() {} });
    let deadlines = CallDeadlines {
        idle: Duration::from_secs(1),
        ..CallDeadlines::CALL
    };
    let calls = (0..FAILURES_TO_OPEN).map(|_| pass_deadlines(&upstream, deadlines, 1));
    futures_util::future::join_all(calls).await;
    assert!(!upstream.health().breaker_open);
    reading.abort();
}

#[tokio::test]
async fn page_of_a_list_is_a_sign_of_life() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    pass_deadlines(&upstream, short_deadlines(), FAILURES_TO_OPEN - 1).await;
    watch.list(ListKind::Tools, None).await.unwrap();
    pass_deadlines(&upstream, short_deadlines(), 1).await;
    assert!(!upstream.health().breaker_open, "not five in a row");
}

/// Without a call and without a walk of its lists.
#[tokio::test]
async fn server_that_is_reached_again_is_up_by_itself() {
    let mut mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    mock.stop().await;
    failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    let health = upstream.health();
    assert!(health.down && !health.breaker_open);
    let went_down = health.down_changed.unwrap();
    failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    mock.restart().await;
    wait_for_condition("weir asks it", PATIENCE, || !upstream.health().down).await;
    assert!(upstream.health().down_changed.unwrap() > went_down);
    assert_eq!(mock.requests_of("tools/call").len(), 0);
}

/// The server answers weir's own request, and hangs with calls.
#[tokio::test]
async fn open_breaker_closes_without_a_call() {
    let mock = server().await;
    let upstream = pinned(&mock.url(), UpstreamProtocol::Modern);
    pass_deadlines(&upstream, short_deadlines(), FAILURES_TO_OPEN).await;
    assert!(upstream.health().breaker_open);
    wait_for_condition("weir asks it", PATIENCE, || !upstream.health().breaker_open).await;
}

// Proves E03.
#[tokio::test]
async fn breaker_opens_if_a_silent_server_loses_each_connection() {
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = is_dead.clone();
    let server = ScriptedServer::start(move |request| match modern_answer(request, &["t"]) {
        Some(answer) if !dead.load(Ordering::Acquire) => answer,
        _ => vec![ServerAct::Close],
    })
    .await;
    let upstream = pinned(&server.url(), UpstreamProtocol::Modern);
    let lost = failure(call_anonymously(&upstream, "t", json!({})).await).await;
    assert_eq!(lost.reason(), "result_unknown");
    is_dead.store(true, Ordering::Release);
    let began = Instant::now();
    while !upstream.health().breaker_open {
        assert!(began.elapsed() < PATIENCE, "it loses each connection");
        assert!(!upstream.health().down, "it is reached");
        outcome(call_anonymously(&upstream, "t", json!({})).await).await;
    }
    is_dead.store(false, Ordering::Release);
    wait_for_condition("weir asks it", PATIENCE, || !upstream.health().breaker_open).await;
}

/// A server that breaks its connections at certain calls is there for all others.
#[tokio::test]
async fn calls_whose_connections_are_lost_stop_no_others() {
    let server = ScriptedServer::start(|request| match request.tool() {
        "t" => vec![text_answer(request, "well")],
        "breaks" => vec![ServerAct::Close],
        _ => modern_answer(request, &["t", "breaks"]).unwrap_or_default(),
    })
    .await;
    let upstream = pinned(&server.url(), UpstreamProtocol::Modern);
    for _ in 0..3 {
        assert_eq!(
            text(call_anonymously(&upstream, "t", json!({})).await).await,
            "well"
        );
        let breaks = (0..2 * FAILURES_TO_OPEN)
            .map(async |_| failure(call_anonymously(&upstream, "breaks", json!({})).await).await);
        for lost in join_all(breaks).await {
            assert_eq!(lost.reason(), "result_unknown");
        }
    }
}

/// A server that is being ended answers its last calls and takes no further connection.
#[tokio::test]
async fn late_answer_of_a_server_that_refuses_connections_does_not_make_it_up() {
    let gate = CallGate::new();
    let mock = MockServer::modern()
        .tool("wait", MockBehaviour::gated(&gate))
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let (listener, address) = listen_on_loopback().await;
    let target = mock.address();
    let accepting = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(target).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    let url = format!("http://{address}/mcp");
    let upstream = pinned(&url, UpstreamProtocol::Modern);
    let early = tokio::spawn({
        let upstream = upstream.clone();
        async move { text(call_anonymously(&upstream, "wait", json!({})).await).await }
    });
    mock.wait_until("it runs", |mock| mock.counts("wait").started == 1)
        .await;
    accepting.abort();
    accepting.await.unwrap_err();
    failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert!(upstream.health().down);
    gate.open();
    early.await.unwrap();
    assert!(upstream.health().down);
}
