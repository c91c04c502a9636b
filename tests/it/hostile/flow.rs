//! Floods: messages that no side takes, and what they cost in descriptors and memory.

use std::sync::Arc;

use serde_json::json;
use weir_testkit::flooding::{Calls, FloodingServer, Plan};
use weir_testkit::{Behaviour, Mockup, RawClient};
use weir_wire::Revision;

use crate::harness::{Weir, until, until_it};

/// Connections that one upstream may have for posts, watches and single requests, far below what floods once took.
const FEW: usize = 24;

/// weir in front of a hostile upstream at `/bad` and a good one at `/good`.
async fn stage(plan: Plan) -> (FloodingServer, Mockup, Weir) {
    staged(plan, json!({})).await
}

async fn staged(plan: Plan, limits: serde_json::Value) -> (FloodingServer, Mockup, Weir) {
    let bad = FloodingServer::start(plan).await;
    let good = Mockup::modern().tool("echo", Behaviour::echo()).start().await;
    let config = json!({
        "upstreams": {
            "bad": { "url": bad.url(), "protocol": "legacy" },
            "good": { "url": good.url() },
        },
        "endpoints": { "/bad": { "upstream": "bad" }, "/good": { "upstream": "good" } },
        "limits": limits,
    });
    let weir = tokio::task::block_in_place(|| Weir::with(config));
    (bad, good, weir)
}

/// File descriptors of weir.
fn descriptors(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.process.id())).unwrap().count()
}

async fn is_well(weir: &Weir) {
    let answer = RawClient::new(&weir.url("/good")).modern().call("echo", json!({ "n": 1 })).await.unwrap();
    assert_eq!(answer.text(), r#"{"n":1}"#);
    assert!(tokio::task::block_in_place(|| weir.admin("/healthz")).starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_thousand_pings_on_a_watch_stream_take_one_connection() {
    let ping = |nth: usize| format!(r#"{{"jsonrpc":"2.0","id":{nth},"method":"ping"}}"#);
    let plan = Plan { says: Some((Arc::new(ping), 6000)), hangs_on_messages: true, ..Plan::default() };
    let (bad, _good, weir) = stage(plan).await;
    until_it("the flood", async || (bad.said() >= 6000 && bad.messages() >= 1).then_some(())).await;
    is_well(&weir).await;
    assert!(bad.most_connections() <= FEW, "{} connections", bad.most_connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_does_not_take_256_answers_ends_and_another_is_opened() {
    // Each is answered with an error that the server has to get.
    let ask = |nth: usize| format!(r#"{{"jsonrpc":"2.0","id":{nth},"method":"no/such"}}"#);
    let plan = Plan { says: Some((Arc::new(ask), 1000)), hangs_on_messages: true, ..Plan::default() };
    let (bad, _good, weir) = stage(plan).await;
    until_it("the end of the session", async || (bad.ended() >= 1).then_some(())).await;
    until_it("another session", async || (bad.sessions() >= 2).then_some(())).await;
    let ended = || weir.metric("weir_upstream_sessions_ended_total", &["bad", "posts_waiting"]);
    tokio::task::block_in_place(|| until("the metric", || (ended() >= 1.0).then_some(())));
    is_well(&weir).await;
    assert!(bad.most_connections() <= FEW, "{} connections", bad.most_connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_changes_of_roots_are_a_few_posts() {
    let (bad, _good, weir) = stage(Plan { hangs_on_messages: true, ..Plan::default() }).await;
    let client = RawClient::new(&weir.url("/bad")).legacy(Revision::V2025_11_25);
    let (client, _) = client.initialize_with(json!({ "roots": { "listChanged": true } })).await.unwrap();
    client.call("echo", json!({})).await.unwrap();
    for _ in 0..50 {
        let mut told = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let client = client.clone();
            told.spawn(async move { client.notify("notifications/roots/list_changed", json!({})).await.unwrap() });
        }
        for answer in told.join_all().await {
            assert_eq!(answer.status.as_u16(), 202);
        }
    }
    until_it("the first", async || (bad.messages() >= 1).then_some(())).await;
    is_well(&weir).await;
    assert!(bad.most_connections() <= FEW, "{} connections", bad.most_connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_to_a_hung_upstream_leave_no_connections_behind() {
    let plan = Plan { hangs_on_messages: true, calls: Calls::Hang, ..Plan::default() };
    let (bad, _good, weir) = stage(plan).await;
    let before = descriptors(&weir);
    let at_once = 60;
    for wave in 1..=10 {
        let client = RawClient::new(&weir.url("/bad")).modern();
        let calls: Vec<_> = (0..at_once)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.call("echo", json!({})).await.is_ok() })
            })
            .collect();
        until_it("the calls", async || (bad.calls() >= wave * at_once).then_some(())).await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
    }
    until_it("a cancel", async || (bad.messages() >= 1).then_some(())).await;
    is_well(&weir).await;
    let most = before + 40;
    until_it("descriptors to be given back", async || (descriptors(&weir) <= most).then_some(())).await;
    assert!(bad.most_connections() <= 3 * at_once + FEW, "{} connections", bad.most_connections());
}
