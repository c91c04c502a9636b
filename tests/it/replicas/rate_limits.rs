//! Rates are those of all replicas together, and cost few trips to the shared store.

use std::time::Instant;

use serde_json::{Value, json};
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::{COUNT, config};
use crate::auth::api_key;
use crate::harness::{CheckedClient, Replicas, wait_until_async};

const COMMANDS: &str = "weir_store_commands_total";
const DECISIONS: &str = "weir_limit_decisions_total";

/// Replicas with this rate of each principal, and the keys of two principals.
async fn start_with_rate(upstream: &MockServer, rate: Value) -> (Replicas, [String; 2]) {
    let (first, second) = (api_key("first"), api_key("second"));
    let mut config = config(upstream);
    config["auth"] = json!({ "mode": "required", "api_keys": [first.1, second.1] });
    config["rates"] = json!({ "principal": rate });
    (Replicas::start(COUNT, config).await, [first.0, second.0])
}

pub(super) fn client(url: &str, key: &str) -> RawClient {
    RawClient::new(url).modern().with_header("X-API-Key", key)
}

/// Makes so many calls; returns the number of those that were admitted. Every other one must be
/// refused by the rate.
pub(super) async fn count_admitted(client: &RawClient, calls: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..calls {
        let answer = client.call("tool_0000", json!({})).await.unwrap();
        match answer.status.as_u16() {
            200 if answer.result()["isError"] == json!(true) => {}
            200 => admitted += 1,
            status => assert_eq!(status, 429, "{:?}", answer.body),
        }
    }
    admitted
}

/// The commands for rates, with a label for a part of them.
fn rate_commands(replicas: &Replicas, operations: &[&str]) -> f64 {
    let of = |operation: &&str| {
        let label = format!("operation=\"{operation}\"");
        replicas.metric(COMMANDS, &[&label])
    };
    operations.iter().map(of).sum()
}

// Proves F01, F03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn principal_gets_one_rate_over_all_replicas_and_each_names_the_time_to_retry() {
    let upstream = MockServer::dual().tools(1).start().await;
    let rate = json!({ "rate": "30/d", "burst": 30 });
    let (replicas, [first, second]) = start_with_rate(&upstream, rate).await;
    let url = replicas.url("/mcp");
    assert_eq!(count_admitted(&client(&url, &first), 90).await, 30);
    assert_eq!(upstream.executions("tool_0000"), 30);
    let before = rate_commands(&replicas, &["take_tokens", "refill_tokens"]);
    for replica in replicas.running() {
        let own = client(&replica.url("/mcp"), &first);
        for _ in 0..50 {
            let refused = own.call("tool_0000", json!({})).await.unwrap();
            assert_eq!(refused.status, 429);
            let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=2880).contains(&wait), "{wait}");
            let rate = refused.header("ratelimit").unwrap();
            assert_eq!(rate, format!("\"principal\";r=0;t={wait}"));
        }
    }
    let trips = rate_commands(&replicas, &["take_tokens", "refill_tokens"]) - before;
    assert!(trips < 0.5, "{trips} trips of refused requests");
    // The other principal has the same rate, whatever replica it asks.
    let mut admitted = 0;
    for replica in replicas.running() {
        admitted += count_admitted(&client(&replica.url("/mcp"), &second), 11).await;
    }
    assert_eq!(admitted, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_request_is_charged_once() {
    let upstream = MockServer::dual().tools(1).start().await;
    let rate = json!({ "rate": "1000/d", "burst": 1000 });
    let (replicas, [key, _]) = start_with_rate(&upstream, rate).await;
    let url = replicas.url("/mcp");
    let header = ("x-api-key", &*key);
    let session = CheckedClient::open_with_header(&url, Revision::NEWEST_LEGACY, header).await;
    let allowed = || replicas.metric(DECISIONS, &["limit=\"principal\"", "outcome=\"allowed\""]);
    let (before, forwarded) = (allowed(), replicas.metric("weir_forwarded_total", &[]));
    for number in 0..30 {
        super::call(&session, number).await;
    }
    let moved = replicas.metric("weir_forwarded_total", &[]) - forwarded;
    assert!(moved > 10.0, "{moved} requests reached another replica");
    // One of the principal's requests and one of its calls for each.
    let charged = allowed() - before;
    assert!((charged - 60.0).abs() < 0.5, "{charged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_rate_awaits_at_most_one_trip_in_twenty_calls() {
    let upstream = MockServer::dual().tools(1).start().await;
    let (replicas, [key, _]) = start_with_rate(&upstream, json!({ "rate": "10000/s" })).await;
    let (url, calls) = (replicas.url("/mcp"), 600);
    let own = ["take_tokens", "refill_tokens", "return_tokens"];
    let counts = || {
        let counts = replicas.redis().command_counts();
        let scripts = ["evalsha", "eval"].map(|name| counts.get(name).copied());
        scripts.into_iter().flatten().sum::<u64>() as f64
    };
    let before = (rate_commands(&replicas, &["heartbeat"]), counts());
    assert_eq!(count_admitted(&client(&url, &key), calls).await, calls);
    // The counts of the server, without the heartbeats, which are scripts, too.
    let scripts = counts() - before.1;
    let others = rate_commands(&replicas, &["heartbeat"]) - before.0;
    let most = calls as f64 / 20.0;
    let awaited = rate_commands(&replicas, &["take_tokens"]);
    assert!(awaited <= most, "{awaited} awaited trips of {calls} calls");
    assert!(
        scripts - others <= most,
        "{scripts} scripts, {others} heartbeats"
    );
    assert!(rate_commands(&replicas, &own) >= 1.0);
    // Unused tokens go back.
    wait_until_async("the return of unused tokens", async || {
        (rate_commands(&replicas, &["return_tokens"]) >= 1.0).then_some(())
    })
    .await;
}

// Proves F03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_rate_admits_no_more_than_itself_and_a_lease_of_each_replica() {
    const RATE: f64 = 100.0;
    /// The burst divided by four times the number of replicas.
    const LEASE: f64 = 8.0;
    let upstream = MockServer::dual().tools(1).start().await;
    let (replicas, [key, _]) = start_with_rate(&upstream, json!({ "rate": "100/s" })).await;
    let url = replicas.url("/mcp");
    let begun = Instant::now();
    let hammering: Vec<_> = (0..16)
        .map(|_| {
            let client = client(&url, &key);
            tokio::spawn(async move { count_admitted(&client, 50).await })
        })
        .collect();
    let mut admitted = 0;
    for client in hammering {
        admitted += client.await.unwrap();
    }
    let most = RATE + begun.elapsed().as_secs_f64() * RATE + COUNT as f64 * LEASE;
    assert!(admitted as f64 <= most, "{admitted} of at most {most}");
    assert!(admitted >= 100 - COUNT * 8, "{admitted}");
    assert_eq!(upstream.executions("tool_0000"), admitted);
}

// Proves F04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_each_replica_admits_its_share() {
    let upstream = MockServer::dual().tools(1).start().await;
    let rate = json!({ "rate": "30/d", "burst": 30 });
    let (mut replicas, [key, _]) = start_with_rate(&upstream, rate).await;
    replicas.redis_mut().kill();
    for replica in replicas.running() {
        let own = client(&replica.url("/mcp"), &key);
        assert_eq!(count_admitted(&own, 40).await, 10);
    }
    let label = "operation=\"take_tokens\"";
    assert!(replicas.metric("weir_store_fallbacks_total", &[label]) >= 30.0);
}
