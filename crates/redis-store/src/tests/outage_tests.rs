//! Outages of the server: it is killed, emptied, paused, or absent from the start.

use std::time::Duration;

use tokio::time::Instant;
use weir_core::port::RecordStore as _;
use weir_testkit::ClosedPort;

use crate::RedisTopology;

use super::replica::{
    FoundPlace, SHORT_COMMAND_TIMEOUT, TestReplica, here, impatient_settings, key, old_server,
    prompt, records_in, shared_name, wait_for,
};

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_leaves_sessions_alone_and_gets_all_when_it_is_back_empty() {
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.wait_live(&[&two]).await;
    one.open(&key(1), "before").await;
    two.open(&key(2), "before").await;
    server.kill();
    assert_eq!(prompt(one.locate(&key(1), &one)).await, here("before"));
    prompt(one.open(&key(3), "during")).await;
    assert!(one.records.pending_writes() > 0);
    // The last view stays in force.
    let place = prompt(two.locate(&key(1), &one)).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
    wait_for("the outage", || !two.store.status().is_connected).await;
    two.give_up(&one);
    let place = prompt(two.locate(&key(1), &one)).await;
    assert!(
        matches!(&place, FoundPlace::Failed(text) if text.contains("shared store")),
        "{place:?}"
    );
    server.restart_empty();
    wait_for("all records", || records_in(&server) == 3).await;
    assert!(one.store.status().is_connected && two.store.status().is_connected);
    // Nothing that is missing counts as gone yet.
    let place = two.locate(&key(9), &one).await;
    assert_ne!(place, FoundPlace::Gone);
    two.wait_live(&[&one]).await;
    let place = two.locate(&key(3), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_server_loses_no_session() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    for id in 0..90 {
        one.open(&key(id), "value").await;
    }
    assert_eq!(records_in(&server), 90);
    server.flush();
    wait_for("all records", || records_in(&server) == 90).await;
    assert_eq!(one.local.count(), 90);
}

/// A crash loses the last second of writes, and a failover those that were not copied yet.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_lost_its_last_writes_at_a_restart_gets_them_again() {
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    one.open(&key(1), "value").await;
    server.run(&["DEL", &shared_name(&server, &key(1))]);
    server.restart();
    wait_for("the record", || records_in(&server) == 1).await;
    let two = TestReplica::start(&server, 2).await;
    assert_eq!(two.locate_without(&key(1), &one).await, here("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_during_an_outage_reaches_the_server_later() {
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    one.open(&key(1), "value").await;
    server.kill();
    assert!(prompt(one.records.remove(&key(1))).await.expect("removed"));
    assert_eq!(prompt(one.locate(&key(1), &one)).await, FoundPlace::Gone);
    server.restart();
    assert_eq!(one.records.flush(Duration::from_secs(40)).await, 0);
    let two = TestReplica::start(&server, 2).await;
    assert_eq!(two.locate_without(&key(1), &one).await, FoundPlace::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_server_delays_nothing_longer_than_its_time_limit() {
    let server = old_server();
    let settings = impatient_settings(&server.url());
    let one = TestReplica::start_with(&settings, 1).await;
    let two = TestReplica::start_with(&settings, 2).await;
    one.open(&key(1), "value").await;
    two.wait_live(&[&one]).await;
    server.pause();
    assert_eq!(prompt(one.locate(&key(1), &one)).await, here("value"));
    prompt(one.open(&key(2), "value")).await;
    two.give_up(&one);
    let place = prompt(two.locate(&key(1), &one)).await;
    assert!(matches!(place, FoundPlace::Failed(_)), "{place:?}");
    // The breaker opens, and commands fail at once.
    wait_for("the outage", || !one.store.status().is_connected).await;
    let begun = Instant::now();
    for id in 10..40 {
        prompt(one.open(&key(id), "value")).await;
    }
    assert!(
        begun.elapsed() < 20 * SHORT_COMMAND_TIMEOUT,
        "{:?}",
        begun.elapsed()
    );
    server.resume();
    assert_eq!(one.records.flush(Duration::from_secs(40)).await, 0);
    assert_eq!(records_in(&server), 32);
    wait_for("the end of the outage", || one.store.status().is_connected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_server_is_no_error_at_the_start() {
    let port = ClosedPort::new();
    let url = format!("redis://{}", port.address());
    let one = TestReplica::start_unconnected(&url, RedisTopology::Single, 1);
    prompt(one.open(&key(1), "value")).await;
    assert_eq!(prompt(one.locate(&key(1), &one)).await, here("value"));
    let place = prompt(one.locate(&key(2), &one)).await;
    assert!(matches!(place, FoundPlace::Failed(_)), "{place:?}");
    wait_for("the error", || one.store.status().last_error.is_some()).await;
    assert!(!one.store.status().is_connected);
    // It waits a limited time for the server.
    one.store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lose_sessions_are_in_the_status() {
    let server = old_server();
    server.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.run(&["CONFIG", "SET", "appendonly", "no"]);
    let one = TestReplica::start(&server, 1).await;
    wait_for("warnings", || one.store.status().warnings.len() == 2).await;
}
