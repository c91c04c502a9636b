//! Replicas that end gracefully while clients call.

use serde_json::json;
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockTool;
use weir_wire::Revision;

use super::call_load::{self, CallKind, CallLoad};
use super::{call, config, open_at, start};
use crate::harness::{CheckedClient, Replicas, within_test_timeout};

/// Rolling restarts of the long test, and the calls that are answered at least in each of them.
/// `WEIR_RESTARTS` sets another number of restarts.
const RESTARTS: u64 = 100;
const CALLS_PER_RESTART: usize = 2_000;

/// Replaces the oldest replica that runs, as orchestrators do: the balancer takes it out before it
/// is stopped.
pub(super) async fn replace(replicas: &mut Replicas, number: usize) {
    replicas.take_out_of_balancer(number);
    assert_eq!(replicas.stop(number).await, Some(0));
    replicas.start_another();
    replicas.wait_until_known().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_replicas_are_replaced_one_after_another() {
    let upstream = call_load::upstream().await;
    let mut replicas = start(&upstream).await;
    let load = CallLoad::start(&replicas.url("/mcp"), &CallKind::ALL).await;
    load.wait_for_answers(100).await;
    for number in 0..2 {
        replace(&mut replicas, number).await;
        load.wait_for_answers(50).await;
    }
    let totals = load.stop(&upstream).await;
    assert_eq!(totals.refused, 0, "{totals:?}");
}

/// A client that opens its stream again whenever that ends, and hears of changes.
struct ChangeListener {
    client: CheckedClient,
    stream: Option<weir_testkit::HttpExchange>,
}

impl ChangeListener {
    async fn open(url: &str) -> Self {
        let client = CheckedClient::open(url, Revision::NEWEST_LEGACY).await;
        Self {
            client,
            stream: None,
        }
    }

    /// Opens the stream if it has none.
    async fn listen(&mut self) {
        if self.stream.is_none() {
            let opened = self.client.raw().get_stream().await.unwrap();
            assert_eq!(opened.status, 200);
            self.stream = Some(opened);
        }
    }

    /// Waits for the announcement of a list of so many tools, over as many streams as it takes.
    async fn expect_list(&mut self, count: usize) {
        loop {
            self.listen().await;
            let Some(stream) = &mut self.stream else {
                continue;
            };
            match stream.next_message().await {
                // A replica that took the session over announces all lists.
                Ok(Some(message)) if message["method"] != "notifications/tools/list_changed" => {}
                Ok(Some(_)) => {
                    if self.client.list_tool_names().await.len() == count {
                        return;
                    }
                }
                Ok(None) | Err(_) => self.stream = None,
            }
        }
    }
}

// Proves T6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn hundred_rolling_restarts_lose_no_call_and_no_session_and_run_no_call_twice() {
    let upstream = call_load::upstream().await;
    let changing = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let changing = changing.start().await;
    let mut config = config(&upstream);
    config["upstreams"]["two"] = json!({ "url": changing.url() });
    config["endpoints"]["/changes"] = json!({ "upstream": "two" });
    let mut replicas = Replicas::start(super::COUNT, config).await;
    let load = CallLoad::start(&replicas.url("/mcp"), &CallKind::ALL).await;
    let mut listener = ChangeListener::open(&replicas.url("/changes")).await;
    let restarts = super::number_of_environment("WEIR_RESTARTS", RESTARTS) as usize;
    for number in 0..restarts {
        replace(&mut replicas, number).await;
        load.wait_for_answers(CALLS_PER_RESTART).await;
        listener.listen().await;
        changing.set_tools(MockTool::numbered(2 + number));
        changing.notify_list_changed();
        within_test_timeout("a change", listener.expect_list(2 + number)).await;
    }
    let totals = load.stop(&upstream).await;
    println!("{restarts} rolling restarts: {totals:?}");
    assert_eq!(totals.refused, 0, "{totals:?}");
    assert!(
        totals.answered >= restarts * CALLS_PER_RESTART,
        "{totals:?}"
    );
}

/// The balancer sends requests to the replica until it refuses connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_answered_or_was_not_run_when_a_replica_stops_unannounced() {
    let upstream = call_load::upstream().await;
    let mut replicas = start(&upstream).await;
    let load = CallLoad::start(&replicas.url("/mcp"), &CallKind::PLAIN).await;
    load.wait_for_answers(100).await;
    assert_eq!(replicas.stop(0).await, Some(0));
    load.wait_for_answers(100).await;
    let totals = load.stop(&upstream).await;
    println!("stop of a replica that the balancer does not know of: {totals:?}");
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
