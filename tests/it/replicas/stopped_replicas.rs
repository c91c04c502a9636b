//! Replicas that end gracefully while clients call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinSet;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::{call, open_at, start};
use crate::harness::{CheckedClient, wait_until_async, within_test_timeout};

/// Callers of each era.
const CALLERS: usize = 4;

/// The counts of many calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CallTotals {
    answered: usize,
    /// Refused with 503, or without any answer.
    refused: usize,
}

/// Clients of both eras that call without a pause.
struct CallLoad {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: JoinSet<CallTotals>,
}

impl CallLoad {
    /// Starts callers of each era at this URL.
    async fn start(url: &str) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            callers: JoinSet::new(),
        };
        for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
            for _ in 0..CALLERS {
                let client = CheckedClient::open(url, revision).await.raw().clone();
                let (stop, answered) = (load.stop.clone(), load.answered.clone());
                load.callers.spawn(call_until(client, stop, answered));
            }
        }
        load
    }

    /// Waits until this many more calls are answered.
    async fn wait_for_answers(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        wait_until_async("more answers", async || {
            (self.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Stops the callers; returns the counts of all.
    async fn stop(mut self) -> CallTotals {
        self.stop.store(true, Ordering::Relaxed);
        let mut totals = CallTotals::default();
        while let Some(own) = within_test_timeout("the callers", self.callers.join_next()).await {
            let own = own.unwrap();
            totals.answered += own.answered;
            totals.refused += own.refused;
        }
        totals
    }
}

async fn call_until(
    client: RawClient,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
) -> CallTotals {
    let mut totals = CallTotals::default();
    while !stop.load(Ordering::Relaxed) {
        match client.call("tool_0000", json!({})).await {
            Ok(answer) if answer.status == 200 => {
                assert!(answer.result()["isError"].is_null(), "{}", answer.last());
                totals.answered += 1;
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{:?}", answer.body);
                totals.refused += 1;
            }
            Err(_) => totals.refused += 1,
        }
    }
    totals
}

/// The balancer takes a replica out before it stops it, as orchestrators do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_replicas_are_replaced_one_after_another() {
    let upstream = MockServer::dual().tools(1).start().await;
    let mut replicas = start(&upstream).await;
    let load = CallLoad::start(&replicas.url("/mcp")).await;
    load.wait_for_answers(100).await;
    for number in 0..2 {
        replicas.take_out_of_balancer(number);
        assert_eq!(replicas.stop(number).await, Some(0));
        load.wait_for_answers(50).await;
        replicas.start_another();
        replicas.wait_until_known().await;
        load.wait_for_answers(50).await;
    }
    let totals = load.stop().await;
    assert_eq!(totals.refused, 0, "{totals:?}");
    assert_eq!(upstream.executions("tool_0000"), totals.answered);
}

/// The balancer sends requests to the replica until it refuses connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_answered_or_was_not_run_when_a_replica_stops_unannounced() {
    let upstream = MockServer::dual().tools(1).start().await;
    let mut replicas = start(&upstream).await;
    let load = CallLoad::start(&replicas.url("/mcp")).await;
    load.wait_for_answers(100).await;
    assert_eq!(replicas.stop(0).await, Some(0));
    load.wait_for_answers(100).await;
    let totals = load.stop().await;
    println!("stop of a replica that the balancer does not know of: {totals:?}");
    assert_eq!(
        upstream.executions("tool_0000"),
        totals.answered,
        "answered calls ran once, and no other call ran"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_goes_on_after_all_replicas_were_replaced() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let mut replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let client = client.at_url(&replicas.url("/mcp"));
    for number in 0..3 {
        replicas.start_another();
        replicas.wait_until_known().await;
        replicas.take_out_of_balancer(number);
        assert_eq!(replicas.stop(number).await, Some(0));
        for round in 0..4 {
            call(&client, round).await;
        }
    }
    super::delete(&client).await;
    super::expect_session_gone(&client, &replicas).await;
}
