//! The registry of replicas against a real server.

use std::time::Duration;

use weir_core::port::{ReplicaDirectory as _, ReplicaId};

use super::replica::{FoundPlace, TestReplica, here, key, old_server, prompt, wait_for};
use crate::RedisTopology;

/// The wait for a store that is away.
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn replicas_list_each_other_with_their_facts() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    one.wait_live(&[&two]).await;
    let registry = one.store.registry();
    assert_eq!(registry.address(&two.id).as_deref(), Some("10.0.0.2:7946"));
    assert_eq!(registry.address(&one.id), None);
    assert_eq!(registry.replicas().len(), 2);
    two.store.set_config_digest("c1".into());
    wait_for("the new digest", || {
        one.seen(&two).is_some_and(|two| &*two.config == "c1")
    })
    .await;
    let seen = one.seen(&two).expect("listed");
    assert_eq!((&*seen.version, &*seen.keys), ("1.0", [1].as_slice()));
    two.store.shutdown().await;
    wait_for("absence", || one.seen(&two).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_replica_is_back_with_its_next_heartbeat() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    one.wait_live(&[&two]).await;
    one.give_up(&two);
    assert_eq!(one.store.registry().address(&two.id), None);
    one.wait_live(&[&two]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_process_goes_on_under_the_name() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    one.open(&key(1), "value").await;
    let successor = TestReplica::start(&server, 1).await;
    one.store.leave_to_successor().await;
    assert_eq!(successor.locate(&key(1), &one).await, here("value"));
    two.wait_live(&[&successor]).await;
    let place = two.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_process_knows_the_other_replicas_while_the_store_is_away() {
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let three = TestReplica::start(&server, 3).await;
    two.wait_live(&[&one, &three]).await;
    two.open(&key(2), "value").await;
    three.open(&key(3), "value").await;
    three.store.shutdown().await;
    for replica in [&one, &two] {
        wait_for("absence", || replica.seen(&three).is_none()).await;
    }
    assert_eq!(two.locate(&key(3), &three).await, here("value"));
    let elsewhere = FoundPlace::Elsewhere(two.id.clone());
    assert_eq!(one.locate(&key(3), &three).await, elsewhere);
    server.kill();
    let known = one.store.export_view().expect("it has a view");
    let successor = TestReplica::start_unconnected(&server.url(), RedisTopology::Single, 1);
    let place = prompt(successor.locate(&key(2), &two)).await;
    assert!(matches!(place, FoundPlace::Failed(_)), "{place:?}");
    assert_eq!(successor.store.export_view(), None);
    successor.store.import_view("a view of another form");
    successor.store.import_view(&known);
    let registry = successor.store.registry();
    assert_eq!(registry.address(&two.id).as_deref(), Some("10.0.0.2:7946"));
    assert!(successor.store.wait_for_view(SHORT).await.is_ok());
    for (id, opened_by) in [(2, &two), (3, &three)] {
        let place = prompt(successor.locate(&key(id), opened_by)).await;
        assert_eq!(place, elsewhere, "{id}");
    }
    // A third process gets the same.
    assert!(successor.store.export_view().is_some());
    server.restart();
    wait_for("the store", || successor.store.status().is_connected).await;
    assert_eq!(successor.locate(&key(2), &two).await, elsewhere);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_crashed_replica_are_taken_over_after_its_silence() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.open(&key(1), "value").await;
    one.crash();
    let elsewhere = FoundPlace::Elsewhere(one.id.clone());
    assert_eq!(two.locate(&key(1), &one).await, elsewhere);
    let registry = two.store.registry();
    wait_for("its end", || registry.address(&one.id).is_none()).await;
    assert_eq!(two.locate(&key(1), &one).await, here("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_that_began_a_moment_ago_is_found_and_one_that_is_not_there_is_not() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let registry = one.store.registry();
    let absent = ReplicaId([9; 8]);
    assert!(registry.may_answer(&absent), "it may have just begun");
    assert_eq!(registry.find_address(&absent).await, None);
    assert!(!registry.may_answer(&absent));
    assert!(!registry.may_answer(&one.id), "it is this one");
    // No heartbeat of the first one is due meanwhile.
    let two = TestReplica::start(&server, 2).await;
    let found = registry.find_address(&two.id).await;
    assert_eq!(found.as_deref(), Some("10.0.0.2:7946"));
    assert!(registry.may_answer(&two.id));
}
