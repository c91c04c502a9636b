//! The shared store is off the path of calls: no request that its owner answers takes a trip.

use std::collections::BTreeSet;

use serde_json::json;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::{COUNT, call, open_at, start};
use crate::harness::{CheckedClient, Replicas, wait_until_async};

const COMMANDS: &str = "weir_store_commands_total";

/// The commands that a test itself makes.
const OF_TESTS: [&str; 4] = ["info", "config|resetstat", "keys", "ping"];

fn heartbeats(replicas: &Replicas) -> f64 {
    replicas.metric(COMMANDS, &[r#"operation="heartbeat""#])
}

/// Counts the heartbeats, and the looks at operators' changes and at changed lists.
fn periodic_commands(replicas: &Replicas) -> f64 {
    let looks = [r#"operation="poll_changes""#, r#"operation="poll_lists""#];
    let looks = looks.map(|labels| replicas.metric(COMMANDS, &[labels]));
    heartbeats(replicas) + looks.iter().sum::<f64>()
}

/// Counts the commands of all replicas, apart from those of every interval.
fn commands(replicas: &Replicas) -> f64 {
    loop {
        let before = periodic_commands(replicas);
        let all = replicas.metric(COMMANDS, &[]);
        // The numbers are read one after the other: none of the interval may come in between.
        if (periodic_commands(replicas) - before).abs() < 0.5 {
            return all - before;
        }
    }
}

/// Waits for so many more heartbeats of all replicas together.
async fn wait_for_heartbeats(replicas: &Replicas, count: usize) {
    let wanted = heartbeats(replicas) + count as f64;
    wait_until_async("heartbeats", async || {
        (heartbeats(replicas) >= wanted).then_some(())
    })
    .await;
}

/// Returns the names of the commands that Redis ran since the counts were reset.
fn command_names(replicas: &Replicas) -> BTreeSet<String> {
    let counts = replicas.redis().command_counts();
    let names = counts.into_keys();
    names.filter(|name| !OF_TESTS.contains(&&**name)).collect()
}

/// Returns the names of the commands of replicas without any requests.
async fn idle_command_names(replicas: &Replicas) -> BTreeSet<String> {
    // Writes of the sessions that were opened last are done by then.
    wait_for_heartbeats(replicas, 2 * COUNT).await;
    replicas.redis().reset_command_counts();
    wait_for_heartbeats(replicas, 3 * COUNT).await;
    let names = command_names(replicas);
    assert!(!names.is_empty(), "heartbeats are commands");
    replicas.redis().reset_command_counts();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_live_owners_make_no_command_to_the_store() {
    let upstream = MockServer::dual().tools(1).start().await;
    let replicas = start(&upstream).await;
    let modern = CheckedClient::open(&replicas.url("/mcp"), Revision::MODERN).await;
    let mut sessions = Vec::new();
    for number in 0..COUNT {
        let session = open_at(&replicas, number, Revision::NEWEST_LEGACY).await;
        sessions.push(session.at_url(&replicas.url("/mcp")));
    }
    let idle = idle_command_names(&replicas).await;
    let before = commands(&replicas);
    for number in 0..60 {
        call(&modern, number).await;
    }
    assert!((commands(&replicas) - before).abs() < 0.5, "modern calls");
    // At the owner, and through replicas that find it from the session's id.
    for session in &sessions {
        for number in 0..60 {
            call(session, number).await;
        }
    }
    assert!((commands(&replicas) - before).abs() < 0.5, "legacy calls");
    let names = command_names(&replicas);
    let more: Vec<_> = names.difference(&idle).collect();
    assert!(more.is_empty(), "{more:?} beside {idle:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_session_ids_get_404_without_a_command_to_the_store() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let real = client.raw().session().unwrap().to_owned();
    let idle = idle_command_names(&replicas).await;
    let before = commands(&replicas);
    let middle = real.len() / 2;
    let other = if real.as_bytes()[middle] == b'A' {
        "B"
    } else {
        "A"
    };
    let forged = [
        // The form of an id of a single replica.
        "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        // The form of a sealed id.
        "A".repeat(real.len()),
        real.chars().rev().collect(),
        format!("{}{other}{}", &real[..middle], &real[middle + 1..]),
        format!("{real}A"),
        real[..real.len() - 1].to_owned(),
        "x".to_owned(),
        "A".repeat(4_000),
    ];
    for id in &forged {
        for replica in replicas.running() {
            let client = RawClient::new(&replica.url("/mcp"))
                .legacy(Revision::NEWEST_LEGACY)
                .with_header("mcp-session-id", id);
            let called = client.call("tool_0000", json!({})).await.unwrap();
            assert_eq!(called.status, 404, "{id:.60} {:?}", called.body);
            assert_eq!(client.get_stream().await.unwrap().status, 404);
            assert_eq!(client.delete().await.unwrap().status, 404);
        }
    }
    assert!((commands(&replicas) - before).abs() < 0.5, "no trips");
    let names = command_names(&replicas);
    let more: Vec<_> = names.difference(&idle).collect();
    assert!(more.is_empty(), "{more:?} beside {idle:?}");
    assert_eq!(upstream.executions("tool_0000"), 0);
    assert!(replicas.metric("weir_forwarded_total", &[]) < 0.5);
}
