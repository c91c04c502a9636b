//! Calls while an instance fails: what goes on to another one, and what never does.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use weir_core::upstream::{CallDeadlines, OutboundCall};
use weir_testkit::{MockBehaviour, MockServer};

use super::*;

/// Returns the number `n` of every call that began to run at a server, with its count.
fn runs(mocks: &[MockServer]) -> HashMap<u64, usize> {
    let mut runs = HashMap::new();
    for mock in mocks {
        for request in mock.requests_of("tools/call") {
            let number = request.message["params"]["arguments"]["n"]
                .as_u64()
                .unwrap();
            *runs.entry(number).or_insert(0) += 1;
        }
    }
    runs
}

#[tokio::test]
async fn killed_instance_loses_no_call_that_had_not_reached_it_and_runs_none_twice() {
    let builder =
        || MockServer::modern().tool("echo", MockBehaviour::slow(Duration::from_millis(2)));
    let mut mocks: [MockServer; 3] = super::start(builder).await;
    let upstream = upstream_of(&mocks);
    let callers: Vec<_> = (0..8_u64)
        .map(|caller| {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                let mut lost = Vec::new();
                for nth in 0..60 {
                    let number = caller * 1000 + nth;
                    let reply = call_anonymously(&upstream, "echo", json!({"n": number})).await;
                    if let Err(failure) = outcome(reply).await.end {
                        assert_eq!(failure.reason(), "result_unknown", "{}", failure.cause());
                        lost.push(number);
                    }
                }
                lost
            })
        })
        .collect();
    for round in 0..3 {
        let victim = round % 3;
        mocks[victim]
            .wait_until("it has calls", |mock| mock.executions("echo") >= 5)
            .await;
        mocks[victim].stop().await;
        // No call is lost while it is down.
        for nth in 0..20 {
            let number = 100_000 + round as u64 * 1000 + nth;
            let reply = call_anonymously(&upstream, "echo", json!({"n": number})).await;
            outcome(reply).await.end.unwrap();
        }
        mocks[victim].restart().await;
        wait_until("it answers again", || {
            breaker(&upstream, victim) != InstanceBreakerState::Open
        })
        .await;
    }
    let mut lost = Vec::new();
    for caller in callers {
        lost.extend(caller.await.unwrap());
    }
    let runs = runs(&mocks);
    assert!(runs.values().all(|times| *times == 1), "a call ran twice");
    // A call that was written to a connection of the killed server may or may not have been read.
    let unseen = 540 - runs.len();
    assert!(unseen <= lost.len(), "{unseen} calls vanished");
    assert!(lost.len() <= 24, "more than the calls in flight: {lost:?}");
}

#[tokio::test]
async fn instance_that_refuses_connections_is_skipped_until_it_answers() {
    let mut mocks: [MockServer; 2] = modern().await;
    // An instance that seems slow gets few calls, too few to find that it is stopped.
    let upstream = build_without_time(even(&mocks));
    echo(&upstream, 10).await;
    mocks[0].stop().await;
    echo(&upstream, 40).await;
    assert_eq!(breaker(&upstream, 0), InstanceBreakerState::Open);
    let health = upstream.health();
    assert!(!health.down && !health.breaker_open, "the other one serves");
    assert!(health.instances[0].last_error.is_some());

    let before = mocks[0].executions("echo");
    mocks[0].restart().await;
    wait_until("weir's own request finds it", || {
        breaker(&upstream, 0) == InstanceBreakerState::HalfOpen
    })
    .await;
    assert_eq!(mocks[0].executions("echo"), before, "no call was risked");
    echo(&upstream, 60).await;
    assert_eq!(breaker(&upstream, 0), InstanceBreakerState::Closed);
    assert!(mocks[0].executions("echo") >= before + 3);
}

#[tokio::test]
async fn all_instances_down_is_a_clear_failure_and_ends() {
    let mut mocks: [MockServer; 2] = modern().await;
    let upstream = upstream_of(&mocks);
    echo(&upstream, 4).await;
    for mock in &mut mocks {
        mock.stop().await;
    }
    let reply = call_anonymously(&upstream, "echo", json!({"n": 0})).await;
    assert_eq!(failure(reply).await.reason(), "unavailable");
    assert!(upstream.health().down);
    mocks[1].restart().await;
    wait_until("one answers again", || !upstream.health().down).await;
    echo(&upstream, 4).await;
}

#[tokio::test]
async fn call_that_may_have_run_is_not_made_elsewhere() {
    for status in [502, 504, 503, 500] {
        let [failing, other] = modern().await;
        let upstream = build(weighted(&[(&failing, 1000), (&other, 1)]));
        echo(&upstream, 3).await;
        let before = other.executions("echo");
        let broken = MockBehaviour::status(status, "text/plain", "broken");
        failing.add_rule("tools/call", 1, broken);
        let mut failures = 0;
        for nth in 0..6 {
            let reply = call_anonymously(&upstream, "echo", json!({"n": nth})).await;
            failures += usize::from(outcome(reply).await.end.is_err());
        }
        assert_eq!(failures, 1, "HTTP {status}");
        let calls = failing.requests_of("tools/call").len() + other.requests_of("tools/call").len();
        assert_eq!(calls, 9, "HTTP {status}: each call was sent once");
        assert!(other.executions("echo") >= before);
    }
}

#[tokio::test]
async fn read_is_repeated_at_another_instance_after_a_lost_connection() {
    let [failing, other] = modern().await;
    let upstream = build(weighted(&[(&failing, 1000), (&other, 1)]));
    echo(&upstream, 3).await;
    let before = other.requests_of("tools/call").len();
    failing.add_rule("tools/call", 1, MockBehaviour::reset_after(0));
    let safe = OutboundCall {
        safe_to_repeat: true,
        ..outbound("echo", call("echo", json!({"n": 7}))).await
    };
    outcome(upstream.clone().call(safe).await)
        .await
        .end
        .unwrap();
    assert_eq!(other.requests_of("tools/call").len(), before + 1);
}

#[tokio::test]
async fn instance_that_accepts_and_never_answers_gets_no_further_calls() {
    for protocol in [UpstreamProtocol::Auto, UpstreamProtocol::Modern] {
        let [hung, good] = modern().await;
        let settings = UpstreamSettings {
            protocol,
            own_deadlines: weir_upstream::OwnDeadlines {
                probe: Duration::from_secs(1),
                ..weir_upstream::OwnDeadlines::default()
            },
            ..weighted(&[(&hung, 1000), (&good, 1)])
        };
        let upstream = build(settings);
        echo(&upstream, 2).await;
        hung.add_rule("*", usize::MAX, MockBehaviour::hang());
        let calls = (0..10).map(async |nth| {
            let call = OutboundCall {
                deadlines: short_deadlines(),
                ..outbound("echo", call("echo", json!({"n": nth}))).await
            };
            let _timed_out_there = outcome(upstream.clone().call(call).await).await;
        });
        futures_util::future::join_all(calls).await;
        wait_until("five calls timed out", || {
            breaker(&upstream, 0) == InstanceBreakerState::Open
        })
        .await;
        let asked = hung.requests_of("server/discover").len();
        hung.wait_until("weir asks it again and again", |mock| {
            mock.requests_of("server/discover").len() >= asked + 3
        })
        .await;
        assert_eq!(breaker(&upstream, 0), InstanceBreakerState::Open);
        let calls = hung.requests_of("tools/call").len();
        echo(&upstream, 10).await;
        assert_eq!(hung.requests_of("tools/call").len(), calls);
        hung.clear_rules();
        wait_until("it answers", || {
            breaker(&upstream, 0) == InstanceBreakerState::HalfOpen
        })
        .await;
        echo(&upstream, 10).await;
    }
}

#[tokio::test]
async fn timeouts_open_the_breaker_of_the_instance_alone() {
    let hung = MockServer::modern()
        .tool("echo", MockBehaviour::hang())
        .start()
        .await;
    let [good] = modern().await;
    let upstream = build(weighted(&[(&hung, 1000), (&good, 1)]));
    let deadlines = CallDeadlines {
        hard: Duration::from_millis(400),
        ..short_deadlines()
    };
    let calls: Vec<_> = (0..12)
        .map(|nth| {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                let call = OutboundCall {
                    deadlines,
                    ..outbound("echo", call("echo", json!({"n": nth}))).await
                };
                outcome(upstream.call(call).await).await.end.map(drop)
            })
        })
        .collect();
    let mut timed_out = 0;
    for call in calls {
        if let Err(failure) = call.await.unwrap() {
            assert_eq!(failure.reason(), "timed_out");
            timed_out += 1;
        }
    }
    assert!(timed_out >= 5, "{timed_out}");
    assert_eq!(breaker(&upstream, 1), InstanceBreakerState::Closed);
    assert!(
        instances(&upstream)[0].last_error.is_some()
            && breaker(&upstream, 0) != InstanceBreakerState::Closed
    );
    echo(&upstream, 1).await;
}

#[tokio::test]
async fn shorter_deadlines_of_an_endpoint_open_no_breaker_of_an_instance() {
    let slow = MockServer::modern()
        .tool("echo", MockBehaviour::hang())
        .start()
        .await;
    let [good] = modern().await;
    let upstream = build(weighted(&[(&slow, 1000), (&good, 1)]));
    let impatient = CallDeadlines::CALL.cut(short_deadlines());
    let calls = (0..12).map(async |nth| {
        let call = OutboundCall {
            deadlines: impatient,
            ..outbound("echo", call("echo", json!({"n": nth}))).await
        };
        let _late_at_the_slow_one = outcome(upstream.clone().call(call).await).await;
    });
    futures_util::future::join_all(calls).await;
    assert!(slow.requests_of("tools/call").len() >= 5);
    assert_eq!(breaker(&upstream, 0), InstanceBreakerState::Closed);
}
