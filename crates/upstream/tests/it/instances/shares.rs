//! The shares of the instances: by weight, and away from slow ones.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer};

use super::*;

#[tokio::test]
async fn canary_gets_its_share_of_the_calls() {
    let [canary, usual, unused] = modern().await;
    // The shares are those of equally fast instances.
    let upstream = build_without_time(weighted(&[(&canary, 10), (&usual, 90), (&unused, 0)]));
    for _ in 0..75 {
        join_all((0..4).map(|_| echo(&upstream, 1))).await;
    }
    let few = canary.executions("echo");
    assert!((10..=75).contains(&few), "{few} of 300 calls");
    assert_eq!(few + usual.executions("echo"), 300);
    assert_eq!(unused.total_executions(), 0, "a weight of 0 gets no calls");
}

#[tokio::test]
async fn equal_instances_share_the_calls() {
    let mocks: [MockServer; 3] = modern().await;
    let upstream = upstream_of(&mocks);
    echo(&upstream, 150).await;
    for mock in &mocks {
        // A busy machine makes one of them seem slow, so the shares are not compared.
        let share = mock.executions("echo");
        assert!((1..=148).contains(&share), "{share} of 150 calls");
    }
    let health = upstream.health();
    assert!(!health.down && !health.breaker_open);
    let shown = &health.instances;
    assert_eq!(shown.len(), 3);
    assert!(
        shown
            .iter()
            .all(|one| one.latency.is_some() && one.in_flight == 0)
    );
    assert_eq!(*shown[0].url, *mocks[0].url());
}

#[tokio::test]
async fn slow_instance_gets_few_calls() {
    // Slower than the other one even if this machine stands still during one of its calls.
    let slow = MockServer::modern()
        .tool("echo", MockBehaviour::slow(Duration::from_secs(3)))
        .start()
        .await;
    let [fast] = modern().await;
    let upstream = build(weighted(&[(&slow, 1), (&fast, 1)]));
    echo(&upstream, 60).await;
    assert!(slow.executions("echo") <= 3, "{}", slow.executions("echo"));
    assert_eq!(slow.executions("echo") + fast.executions("echo"), 60);
}

#[tokio::test]
async fn call_that_runs_on_counts_at_its_instance() {
    let gate = weir_testkit::mock_server::CallGate::new();
    let gated = || MockServer::modern().tool("echo", MockBehaviour::gated(&gate));
    let mocks: [MockServer; 2] = super::start(gated).await;
    let upstream = upstream_of(&mocks);
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let upstream = upstream.clone();
            tokio::spawn(async move { echo(&upstream, 1).await })
        })
        .collect();
    wait_until("every call runs", || {
        mocks
            .iter()
            .map(|mock| mock.executions("echo"))
            .sum::<usize>()
            == 8
    })
    .await;
    let running: Vec<_> = instances(&upstream)
        .iter()
        .map(|one| one.in_flight)
        .collect();
    assert_eq!(running.iter().sum::<usize>(), 8);
    assert!(running.iter().all(|running| *running >= 2), "{running:?}");
    gate.open();
    for call in calls {
        call.await.unwrap();
    }
    assert!(instances(&upstream).iter().all(|one| one.in_flight == 0));
    let reply = call_anonymously(&upstream, "echo", json!({})).await;
    outcome(reply).await.end.unwrap();
}

#[tokio::test]
async fn instances_share_one_token() {
    let mocks: [MockServer; 2] = modern().await;
    let authority = weir_testkit::TokenServer::start().await;
    let mut settings = even(&mocks);
    if let TransportSettings::Http(http) = &mut settings.transport {
        http.auth = Some(Box::new(crate::tokens::client(&authority)));
    }
    let upstream = build(settings);
    echo(&upstream, 20).await;
    assert_eq!(authority.requests().len(), 1, "one token serves both");
    let tokens: std::collections::HashSet<_> = mocks
        .iter()
        .flat_map(|mock| mock.requests_of("tools/call"))
        .map(|request| request.header("authorization").unwrap().to_owned())
        .collect();
    assert_eq!(tokens.len(), 1);
    assert!(mocks.iter().all(|mock| mock.executions("echo") > 0));
}
