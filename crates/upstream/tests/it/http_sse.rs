//! Servers of HTTP+SSE: the responses to the posts of messages, late ones and refusals.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::upstream::Upstream;
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer, SseRelay, wait_for_condition};
use weir_upstream::{OwnDeadlines, UpstreamProtocol, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;
use crate::question_answers::asking_server;

/// The deadline of lists, which is no limit of calls. It leaves a slow machine time for the
/// handshake.
const LIST_DEADLINE: Duration = Duration::from_secs(3);

fn over_sse(relay: &SseRelay) -> Arc<dyn Upstream> {
    build(UpstreamSettings {
        protocol: UpstreamProtocol::Sse,
        own_deadlines: list_deadline(LIST_DEADLINE),
        ..settings(&relay.url())
    })
}

async fn server_with(gate: &CallGate) -> MockServer {
    MockServer::legacy(Revision::V2025_11_25)
        .tool("wait", MockBehaviour::gated(gate))
        .tool("echo", MockBehaviour::echo())
        .start()
        .await
}

fn begin(upstream: &Arc<dyn Upstream>, tool: &'static str) -> tokio::task::JoinHandle<String> {
    let upstream = upstream.clone();
    tokio::spawn(async move { text(call_anonymously(&upstream, tool, json!({})).await).await })
}

/// Some servers respond to a POST once its message is handled.
#[tokio::test]
async fn calls_whose_posts_get_late_responses_run_together_beyond_the_list_deadline() {
    let gate = CallGate::new();
    let mock = server_with(&gate).await;
    let relay = SseRelay::start_responding_late(&mock.url()).await;
    let upstream = over_sse(&relay);
    let calls = [begin(&upstream, "wait"), begin(&upstream, "wait")];
    mock.wait_until("both run", |mock| mock.counts("wait").started == 2)
        .await;
    tokio::time::sleep(LIST_DEADLINE + Duration::from_millis(500)).await;
    begin(&upstream, "echo").await.unwrap();
    gate.open();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(mock.executions("wait"), 2);
    assert_eq!(relay.streams(), 1);
}

#[tokio::test]
async fn question_is_answered_while_the_post_of_its_call_has_no_response() {
    let mock = asking_server().await;
    let relay = SseRelay::start_responding_late(&mock.url()).await;
    let upstream = over_sse(&relay);
    let (reply, question) = ask(&upstream).await;
    question.answer(filled());
    assert!(text(reply).await.contains("Ada"));
    assert_eq!(relay.streams(), 1);
}

#[tokio::test]
async fn cancellation_reaches_a_server_that_has_not_responded_to_the_call() {
    let gate = CallGate::new();
    let mock = server_with(&gate).await;
    let relay = SseRelay::start_responding_late(&mock.url()).await;
    let upstream = over_sse(&relay);
    let call = begin(&upstream, "wait");
    mock.wait_until("it runs", |mock| mock.counts("wait").started == 1)
        .await;
    call.abort();
    let is_cancelled = |mock: &MockServer| !mock.requests_of("notifications/cancelled").is_empty();
    mock.wait_until("the cancellation", is_cancelled).await;
}

#[tokio::test]
async fn refused_post_fails_its_call_alone() {
    let gate = CallGate::new();
    let mock = server_with(&gate).await;
    let relay = SseRelay::start(&mock.url()).await;
    let upstream = over_sse(&relay);
    let running = begin(&upstream, "wait");
    mock.wait_until("it runs", |mock| mock.counts("wait").started == 1)
        .await;
    for (status, reason) in [
        (400, "bad_answer"),
        (401, "unavailable"),
        (403, "unavailable"),
        (429, "limit"),
        (500, "bad_answer"),
        (503, "busy"),
    ] {
        relay.refuse("refused", status);
        let failure = failure(call_anonymously(&upstream, "refused", json!({})).await).await;
        assert_eq!(failure.reason(), reason, "{status}: {failure:?}");
        let wait = [429, 503].contains(&status).then_some(2);
        assert_eq!(
            failure.retry_delay().map(|wait| wait.as_secs()),
            wait,
            "{status}"
        );
    }
    // A refused notification is dropped.
    relay.refuse("notifications/cancelled", 400);
    let cancelled = begin(&upstream, "wait");
    mock.wait_until("it runs", |mock| mock.counts("wait").started == 2)
        .await;
    cancelled.abort();
    begin(&upstream, "echo").await.unwrap();
    gate.open();
    running.await.unwrap();
    assert_eq!(relay.streams(), 1);
}

/// The URL for messages has the session in it.
#[tokio::test]
async fn refusal_with_404_ends_the_connection() {
    let gate = CallGate::new();
    let mock = server_with(&gate).await;
    let relay = SseRelay::start(&mock.url()).await;
    let upstream = over_sse(&relay);
    let running = tokio::spawn({
        let upstream = upstream.clone();
        async move { failure(call_anonymously(&upstream, "wait", json!({})).await).await }
    });
    mock.wait_until("it runs", |mock| mock.counts("wait").started == 1)
        .await;
    relay.refuse("refused", 404);
    let refused = failure(call_anonymously(&upstream, "refused", json!({})).await).await;
    assert_eq!(refused.reason(), "unavailable", "{refused:?}");
    assert_eq!(running.await.unwrap().reason(), "result_unknown");
}

/// It still opens streams. Weir asks it on streams of its own.
#[tokio::test]
async fn server_that_answers_nothing_is_not_up_again_before_it_does() {
    const FAILURES_TO_OPEN: usize = 5;
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("hang", MockBehaviour::hang())
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let relay = SseRelay::start(&mock.url()).await;
    let deadlines = OwnDeadlines {
        probe: Duration::from_secs(3),
        ..OwnDeadlines::default()
    };
    let upstream = build(UpstreamSettings {
        protocol: UpstreamProtocol::Sse,
        own_deadlines: deadlines,
        ..settings(&relay.url())
    });
    begin(&upstream, "echo").await.unwrap();
    mock.add_rule("initialize", 2, MockBehaviour::hang());
    let late = |_| async {
        let reply = call_within(&upstream, "hang", short_deadlines()).await;
        assert_eq!(failure(reply).await.reason(), "timed_out");
    };
    futures_util::future::join_all((0..FAILURES_TO_OPEN).map(late)).await;
    assert!(upstream.health().breaker_open);
    let patience = Duration::from_secs(30);
    wait_for_condition("two checks", patience, || relay.streams() >= 3).await;
    assert!(upstream.health().breaker_open);
    wait_for_condition("it answers", patience, || !upstream.health().breaker_open).await;
    assert!(mock.requests_of("initialize").len() >= 4);
}

/// Some servers open their stream for every method, also for the POST of the era probe.
#[tokio::test]
async fn server_that_answers_the_probe_with_its_stream_is_found_and_served() {
    let mock = server_with(&CallGate::new()).await;
    let relay = SseRelay::start_for_any_method(&mock.url()).await;
    let upstream = upstream(&relay.url());
    assert_eq!(begin(&upstream, "echo").await.unwrap(), "{}");
    // A pinned protocol works, or says what to write instead.
    assert_eq!(begin(&over_sse(&relay), "echo").await.unwrap(), "{}");
    let pinned = pinned(&relay.url(), UpstreamProtocol::Legacy);
    let failure = failure(call_anonymously(&pinned, "echo", json!({})).await).await;
    assert_eq!(failure.reason(), "unavailable", "{failure:?}");
    let cause = failure.cause();
    assert!(cause.contains("write `protocol: sse`"), "{cause}");
}
