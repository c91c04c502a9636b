//! Records of several replicas: their owners, claims and ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use weir_core::port::{RecordStore, ReplicaId};

use super::replica::{
    FoundPlace, TestReplica, here, impatient_settings, key, old_server, prompt, shared_name,
    wait_for,
};

/// Longer than two heartbeats.
const HEARTBEATS: Duration = Duration::from_millis(4500);

#[tokio::test(flavor = "multi_thread")]
async fn session_of_a_live_replica_is_elsewhere_without_a_command() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.open(&key(1), "value").await;
    one.finish_writes().await;
    server.reset_command_counts();
    let place = two.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
    assert_eq!(one.locate(&key(1), &one).await, here("value"));
    // Heartbeats alone, which touch no record.
    let counts = server.command_counts();
    assert_eq!(counts.get("hmget"), None, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_an_ended_replica_is_taken_over_with_its_value() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let three = TestReplica::start(&server, 3).await;
    two.wait_live(&[&one, &three]).await;
    three.wait_live(&[&one, &two]).await;
    one.open(&key(1), "first").await;
    one.change(&key(1), "second").await;
    assert_eq!(one.store.begin_drain().await, 0);
    one.store.shutdown().await;
    wait_for("absence", || two.seen(&one).is_none()).await;
    assert_eq!(two.locate(&key(1), &one).await, here("second"));
    assert_eq!(two.local.count(), 1);
    // The third one finds the new owner, and remembers it.
    wait_for("absence", || three.seen(&one).is_none()).await;
    let elsewhere = FoundPlace::Elsewhere(two.id.clone());
    assert_eq!(three.locate(&key(1), &one).await, elsewhere);
    // The take-over is written in the background.
    two.finish_writes().await;
    server.reset_command_counts();
    assert_eq!(three.locate(&key(1), &one).await, elsewhere);
    // Heartbeats use other commands.
    assert_eq!(server.command_counts().get("hmget"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_replica_leaves_its_sessions_to_others() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.open(&key(1), "value").await;
    assert_eq!(one.store.begin_drain().await, 0);
    wait_for("drain", || {
        two.seen(&one).is_some_and(|one| one.is_draining)
    })
    .await;
    assert_eq!(two.locate(&key(1), &one).await, here("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_claimers_wins() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let three = TestReplica::start(&server, 3).await;
    two.wait_live(&[&one, &three]).await;
    three.wait_live(&[&one, &two]).await;
    for id in 0..20 {
        one.open(&key(id), "value").await;
    }
    one.store.shutdown().await;
    wait_for("absence", || two.seen(&one).is_none()).await;
    wait_for("absence", || three.seen(&one).is_none()).await;
    for id in 0..20 {
        let key = key(id);
        let claims = tokio::join!(
            two.locate(&key, &one),
            two.locate(&key, &one),
            three.locate(&key, &one),
            three.locate(&key, &one),
        );
        let of_two = (here("value"), FoundPlace::Elsewhere(two.id.clone()));
        let of_three = (FoundPlace::Elsewhere(three.id.clone()), here("value"));
        assert!(claims.0 == claims.1 && claims.2 == claims.3, "{claims:?}");
        let claims = (claims.0, claims.2);
        assert!(claims == of_two || claims == of_three, "{claims:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_a_replica_that_just_began_is_not_taken() {
    let server = old_server();
    let two = TestReplica::start(&server, 2).await;
    // The second one has not heard of the first one yet.
    let one = TestReplica::start(&server, 1).await;
    one.open(&key(1), "value").await;
    let place = two.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_session_is_gone_everywhere() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.open(&key(1), "value").await;
    assert!(one.records.remove(&key(1)).await.unwrap());
    assert!(!one.records.remove(&key(1)).await.unwrap());
    assert_eq!(one.locate(&key(1), &one).await, FoundPlace::Gone);
    assert_eq!(two.locate_without(&key(1), &one).await, FoundPlace::Gone);
    // One that was never there leaves no mark.
    assert!(!one.records.remove(&key(2)).await.unwrap());
    let records = server
        .keys()
        .iter()
        .filter(|name| name.contains(":s:"))
        .count();
    assert_eq!(records, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_another_replica_removed_ends_at_its_owner() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    one.open(&key(1), "value").await;
    assert!(two.records.remove(&key(1)).await.unwrap());
    // The owner notices it with its next write.
    one.change(&key(1), "second").await;
    wait_for("loss", || one.local.count() == 0).await;
    assert_eq!(one.locate(&key(1), &one).await, FoundPlace::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_session_is_gone() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    let short = Duration::from_millis(300);
    one.open_for(&key(1), "value", short).await;
    let mut expired = Vec::new();
    wait_for("expiry", || {
        expired.extend(one.records.expired());
        !expired.is_empty()
    })
    .await;
    assert_eq!(expired, [key(1)]);
    assert_eq!(one.locate(&key(1), &one).await, FoundPlace::Gone);
    assert_eq!(one.records.flush(Duration::from_secs(10)).await, 0);
    assert_eq!(one.locate(&key(1), &one).await, FoundPlace::Gone);
    assert_eq!(two.locate_without(&key(1), &one).await, FoundPlace::Gone);
    let name = shared_name(&server, &key(1));
    assert_eq!(server.run(&["HGET", &name, "x"]).text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_value_counts_as_missing() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    for id in 1..=3 {
        one.open(&key(id), "value").await;
    }
    let names: Vec<_> = (1..=3).map(|id| shared_name(&server, &key(id))).collect();
    let foreign = server.run(&["HGET", &names[1], "v"]).text();
    server.run(&["HSET", &names[0], "v", &foreign]);
    server.run(&["HSET", &names[1], "v", "no sealed value"]);
    server.run(&["DEL", &names[2]]);
    server.run(&["SET", &names[2], "no hash"]);
    for id in 1..=3 {
        let place = two.locate_without(&key(id), &one).await;
        assert_eq!(place, FoundPlace::Gone, "{id}");
    }
    // It stays the owner's, whose next write repairs it.
    assert_eq!(server.run(&["HGET", &names[0], "o"]).text(), "01".repeat(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_that_was_given_up_loses_its_session_with_the_next_write() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.open(&key(1), "first").await;
    assert_eq!(two.locate_without(&key(1), &one).await, here("first"));
    one.change(&key(1), "second").await;
    let mut lost = Vec::new();
    wait_for("loss", || {
        lost.extend(one.records.lost());
        !lost.is_empty()
    })
    .await;
    assert_eq!(lost, [key(1)]);
    assert_eq!(one.local.count(), 0);
    assert_eq!(one.records.lost(), []);
    one.wait_live(&[&two]).await;
    let place = one.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(two.id.clone()));
    assert_eq!(two.locate(&key(1), &one).await, here("first"));
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_that_was_given_up_drops_its_session_though_it_is_not_used() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    for replica in [&one, &two] {
        replica.store.link_bus(&replica.bus);
    }
    two.wait_live(&[&one]).await;
    one.open(&key(1), "value").await;
    one.open(&key(2), "other").await;
    let is_subscribed = || server.run(&["PUBSUB", "NUMSUB", "test:bus"]).texts()[1] == "2";
    wait_for("subscriptions", is_subscribed).await;
    assert_eq!(two.locate_without(&key(1), &one).await, here("value"));
    wait_for("the end of the copy", || one.local.count() == 1).await;
    let left = one.records.load(&key(2), None).await.unwrap();
    assert!(left.is_some(), "a session that stayed is still here");
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_looks_after_a_message_that_never_arrived() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    one.store.link_bus(&one.bus);
    two.wait_live(&[&one]).await;
    let is_subscribed = || server.run(&["PUBSUB", "NUMSUB", "test:bus"]).texts()[1] == "1";
    wait_for("the subscription", is_subscribed).await;
    one.open(&key(1), "value").await;
    // The looks of the start are over, and a heartbeat of the other has been compared.
    tokio::time::sleep(HEARTBEATS).await;
    // The bus of the other is not linked: its message about the session goes nowhere.
    assert_eq!(two.locate_without(&key(1), &one).await, here("value"));
    tokio::time::sleep(HEARTBEATS).await;
    assert_eq!(one.local.count(), 1, "it knows nothing");
    two.store.registry().sent_frames().skip();
    wait_for("the end of the copy", || one.local.count() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_at_a_former_owner_ends_nothing() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    let short = Duration::from_secs(4);
    one.open_for(&key(1), "value", short).await;
    assert_eq!(two.locate_without(&key(1), &one).await, here("value"));
    wait_for("expiry", || !one.records.expired().is_empty()).await;
    assert_eq!(one.records.flush(Duration::from_secs(10)).await, 0);
    assert_eq!(two.locate(&key(1), &one).await, here("value"));
    one.wait_live(&[&two]).await;
    let place = one.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(two.id.clone()));
}

/// A replica that was paused for longer than the time to live finds its copies expired, and cannot
/// know if another one has taken the sessions over.
#[tokio::test(flavor = "multi_thread")]
async fn session_that_expired_here_is_not_gone_before_the_store_says_so() {
    let server = old_server();
    let one = TestReplica::start_with(&impatient_settings(&server.url()), 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.wait_live(&[&two]).await;
    one.open_for(&key(1), "value", Duration::from_secs(4)).await;
    assert_eq!(two.locate_without(&key(1), &one).await, here("value"));
    server.pause();
    wait_for("expiry", || !one.records.expired().is_empty()).await;
    wait_for("the outage", || !one.store.status().is_connected).await;
    // The end is written in vain again and again, with pauses between.
    for _ in 0..40 {
        let place = prompt(one.locate(&key(1), &one)).await;
        assert!(matches!(place, FoundPlace::Failed(_)), "{place:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.resume();
    wait_for("the end of the outage", || one.store.status().is_connected).await;
    one.wait_live(&[&two]).await;
    let place = one.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(two.id.clone()));
    assert_eq!(two.locate(&key(1), &one).await, here("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_session_is_gone() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let unknown = ReplicaId([9; 8]);
    let place = one.records.locate(&key(9), None, &unknown).await.unwrap();
    assert!(matches!(place, weir_core::port::RecordPlace::Gone));
}

/// While the store is slow, the first records of a replica are written after the client has its
/// session.
#[tokio::test(flavor = "multi_thread")]
async fn unwritten_session_of_a_replica_that_just_began_is_not_gone() {
    let server = old_server();
    let two = TestReplica::start(&server, 2).await;
    let one = TestReplica::start(&server, 1).await;
    let place = two.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
}
