//! The rotation of the sealing key against a real server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use weir_core::instant::unix_millis;
use weir_core::port::{
    ChangeDraft, ChangeTarget, Clock as _, ReplicaDirectory as _, SharedChanges as _,
};
use weir_replica_testkit::RedisServer;
use weir_store::MemoryBus;
use weir_testkit::TokioClock;

use super::replica::{FoundPlace, TestReplica, here, key, keys, old_server, wait_for};
use crate::{RedisChanges, SealingKeyUse};

const TARGET: ChangeTarget = ChangeTarget([1; 32]);

/// The key that a replica seals with, as it announces it.
fn sealing_key(replica: &TestReplica) -> Option<u8> {
    let own = replica.seen(replica)?;
    own.sealing_key
}

fn changes(replica: &TestReplica) -> Arc<RedisChanges> {
    replica.store.changes(Arc::<MemoryBus>::default())
}

/// The id of the key of the change in the server.
fn key_of_change(server: &RedisServer) -> u8 {
    let field = data_encoding::HEXLOWER.encode(&TARGET.0);
    let value = server.run(&["HGET", "test:changes", &field]).text();
    // The version and the end stand before the sealed text.
    data_encoding::BASE64URL_NOPAD
        .decode(&value.as_bytes()[48..])
        .unwrap()[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_without_loss_and_changes_outlive_the_old_one() {
    let server = old_server();
    let one = TestReplica::start_with_keys(&server, 1, &[1]).await;
    let two = TestReplica::start_with_keys(&server, 2, &[1]).await;
    one.wait_live(&[&two]).await;
    two.wait_live(&[&one]).await;
    let known = changes(&one);
    let draft = ChangeDraft {
        target: TARGET,
        at: unix_millis(TokioClock::new().wall()),
        is_removal: false,
        ends: None,
        body: "blocked".into(),
    };
    known.publish(draft).await.unwrap();
    one.store.replace_keys(keys(&[2, 1]));
    wait_for("the announcement", || {
        two.seen(&one).is_some_and(|one| one.keys == [2, 1])
    })
    .await;
    assert_eq!(sealing_key(&one), Some(1));
    one.open(&key(1), "old").await;
    let one_alone = keys(&[2])[0].name();
    let still_used = one.store.lost_key_use(&[one_alone]);
    assert_eq!(still_used.unwrap().key, 1);
    two.store.replace_keys(keys(&[2, 1]));
    for replica in [&one, &two] {
        wait_for("the new key", || sealing_key(replica) == Some(2)).await;
        wait_for("no use of the old key", || {
            replica.store.lost_key_use(&[one_alone]).is_none()
        })
        .await;
    }
    // A session of the old key is read at the other replica.
    assert_eq!(two.locate_without(&key(1), &one).await, here("old"));
    wait_for("a change of the new key", || key_of_change(&server) == 2).await;
    two.store.replace_keys(keys(&[2]));
    one.store.replace_keys(keys(&[2]));
    let three = TestReplica::start_with_keys(&server, 3, &[2]).await;
    assert_eq!(three.store.missing_key(), None);
    let seen = changes(&three);
    seen.fetch().await.unwrap();
    assert_eq!(seen.watch().borrow()[&TARGET].body, "blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_the_sealing_key_of_others_names_it() {
    let server = old_server();
    let one = TestReplica::start_with_keys(&server, 1, &[1]).await;
    wait_for("readiness", || {
        one.seen(&one).is_some_and(|own| own.opens_all)
    })
    .await;
    let stranger = TestReplica::start_with_keys(&server, 2, &[3]).await;
    let missing = SealingKeyUse {
        key: 1,
        replica: one.id.clone(),
    };
    wait_for("the missing key", || {
        stranger.store.missing_key() == Some(missing.clone())
    })
    .await;
    wait_for("the stranger", || {
        one.seen(&stranger).is_some_and(|other| !other.opens_all)
    })
    .await;
    assert_eq!(one.store.missing_key(), None);
    let place = stranger.locate(&key(1), &one).await;
    assert_eq!(place, FoundPlace::Elsewhere(one.id.clone()));
    stranger.store.replace_keys(keys(&[3, 1]));
    wait_for("readiness", || stranger.store.missing_key().is_none()).await;
    assert!(stranger.store.registry().replicas().len() == 2);
}
