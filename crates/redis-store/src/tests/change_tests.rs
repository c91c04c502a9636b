//! Operators' changes of several replicas.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::instant::unix_millis;
use weir_core::port::{ChangeDraft, ChangeMap, ChangeTarget, Clock as _, SharedChanges as _};
use weir_replica_testkit::RedisServer;
use weir_store::MemoryBus;
use weir_testkit::{ClosedPort, TokioClock};

use super::replica::{TestReplica, old_server, wait_for};
use crate::{RedisChanges, RedisTopology};

/// The time in which a change is in force on every replica.
const PROMPT: Duration = Duration::from_secs(5);
const KEY: &str = "test:changes";

/// A replica and the changes that it knows.
struct ChangeReplica {
    replica: TestReplica,
    changes: Arc<RedisChanges>,
}

impl ChangeReplica {
    async fn start(server: &RedisServer, number: u8) -> Self {
        Self::of(TestReplica::start(server, number).await)
    }

    fn of(replica: TestReplica) -> Self {
        let bus = Arc::<MemoryBus>::default();
        replica.store.link_bus(&bus);
        let changes = replica.store.changes(bus);
        Self { replica, changes }
    }

    fn known(&self) -> Arc<ChangeMap> {
        self.changes.watch().borrow().clone()
    }

    /// Returns the body of a target's change, and `-` for a removal.
    fn body(&self, target: u8) -> Option<String> {
        let known = self.known();
        let change = known.get(&ChangeTarget([target; 32]))?;
        let body = String::from_utf8_lossy(&change.body).into_owned();
        Some(if change.is_removal {
            "-".to_owned()
        } else {
            body
        })
    }

    async fn wait_body(&self, target: u8, body: &str) {
        let name = format!("{body} of {target}");
        wait_for(&name, || self.body(target).as_deref() == Some(body)).await;
    }

    async fn publish(&self, target: u8, body: &'static str) {
        self.changes.publish(draft(target, body)).await.unwrap();
    }

    async fn remove(&self, target: u8) {
        self.changes.publish(removal(target)).await.unwrap();
    }
}

fn draft(target: u8, body: &'static str) -> ChangeDraft {
    ChangeDraft {
        target: ChangeTarget([target; 32]),
        at: now(),
        is_removal: false,
        ends: None,
        body: body.into(),
    }
}

fn removal(target: u8) -> ChangeDraft {
    ChangeDraft {
        is_removal: true,
        ..draft(target, "-")
    }
}

/// Returns the time at which clocks of tests begin.
fn now() -> u64 {
    unix_millis(TokioClock::new().wall())
}

fn field(target: u8) -> String {
    data_encoding::HEXLOWER.encode(&[target; 32])
}

fn count_fields(server: &RedisServer) -> String {
    server.run(&["HLEN", KEY]).text()
}

#[tokio::test(flavor = "multi_thread")]
async fn change_and_its_removal_reach_the_other_replicas_and_those_that_start_later() {
    let server = old_server();
    let one = ChangeReplica::start(&server, 1).await;
    let two = ChangeReplica::start(&server, 2).await;
    one.publish(1, "a").await;
    one.publish(2, "b").await;
    let begun = Instant::now();
    two.wait_body(1, "a").await;
    two.wait_body(2, "b").await;
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    two.remove(1).await;
    one.wait_body(1, "-").await;
    // The other replica's clock may be behind: an action that follows another one is newer.
    let late = ChangeDraft {
        at: now() - 60_000,
        ..draft(1, "again")
    };
    one.changes.publish(late).await.unwrap();
    two.wait_body(1, "again").await;
    let three = ChangeReplica::start(&server, 3).await;
    three.changes.fetch().await.unwrap();
    assert_eq!(three.known(), one.known());
    assert_eq!(server.run(&["TTL", KEY]).text(), "-1");
    assert!(
        !server
            .run(&["HGETALL", KEY])
            .texts()
            .concat()
            .contains("again")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_server_gets_all_changes_again() {
    let mut server = old_server();
    let one = ChangeReplica::start(&server, 1).await;
    one.publish(1, "a").await;
    one.remove(2).await;
    assert_eq!(count_fields(&server), "4");
    server.flush();
    wait_for("the changes", || count_fields(&server) == "4").await;
    server.restart_empty();
    wait_for("the changes", || {
        one.replica.store.status().is_connected && count_fields(&server) == "4"
    })
    .await;
    let two = ChangeReplica::start(&server, 2).await;
    two.wait_body(1, "a").await;
    two.wait_body(2, "-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_an_outage_are_written_later_and_a_removal_outlives_older_entries() {
    let mut server = old_server();
    let one = ChangeReplica::start(&server, 1).await;
    let two = ChangeReplica::start(&server, 2).await;
    one.publish(1, "a").await;
    two.wait_body(1, "a").await;
    server.kill();
    let begun = Instant::now();
    one.changes.publish(removal(1)).await.unwrap_err();
    two.changes.publish(draft(2, "b")).await.unwrap_err();
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(one.body(1).as_deref(), Some("-"));
    // The replica that is cut off keeps the changes that it knows.
    assert_eq!(two.body(1).as_deref(), Some("a"));
    server.restart_empty();
    // The other replica writes the older entry again.
    for replica in [&one, &two] {
        replica.wait_body(1, "-").await;
        replica.wait_body(2, "b").await;
    }
    let three = ChangeReplica::start(&server, 3).await;
    three.wait_body(1, "-").await;
    // The older entry of a process before does not come back, either.
    let old = ChangeDraft {
        at: now() - 60_000,
        ..draft(1, "a")
    };
    three.changes.restore(old);
    assert_eq!(three.body(1).as_deref(), Some("-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupted_and_foreign_entries_are_ignored() {
    let server = old_server();
    let one = ChangeReplica::start(&server, 1).await;
    one.publish(1, "a").await;
    one.publish(2, "b").await;
    let value = server.run(&["HGET", KEY, &field(1)]).text();
    // An entry of another target, and a forged one of the greatest version.
    server.run(&["HSET", KEY, &field(3), &value]);
    let forged = format!("{}{}", "f".repeat(48), &value[48..]);
    server.run(&["HSET", KEY, &field(2), &forged]);
    server.run(&["HSET", KEY, "stamp", "another"]);
    // Its own change replaces the forged one.
    let is_restored = || server.run(&["HGET", KEY, &field(2)]).text() != forged;
    wait_for("the own change", is_restored).await;
    let two = ChangeReplica::start(&server, 2).await;
    two.wait_body(1, "a").await;
    two.wait_body(2, "b").await;
    assert_eq!((one.body(3), two.body(3)), (None, None));
    assert_eq!(one.known().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_are_over_fall_away() {
    let server = old_server();
    let one = ChangeReplica::start(&server, 1).await;
    let begun = Instant::now();
    let life = Duration::from_secs(3);
    let short = ChangeDraft {
        ends: Some(now() + 3000),
        ..draft(1, "a")
    };
    one.changes.publish(short).await.unwrap();
    let is_over = || server.run(&["HEXISTS", KEY, &field(1)]).text() == "0";
    assert!(!is_over());
    wait_for("its end", || begun.elapsed() > life).await;
    one.publish(2, "b").await;
    assert!(is_over());
    let two = ChangeReplica::start(&server, 2).await;
    two.wait_body(2, "b").await;
    assert_eq!(two.body(1), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_server_delays_the_first_fetch_for_a_limited_time() {
    let port = ClosedPort::new();
    let url = format!("redis://{}", port.address());
    let replica = TestReplica::start_unconnected(&url, RedisTopology::Single, 1);
    let one = ChangeReplica::of(replica);
    let begun = Instant::now();
    one.changes.fetch().await.unwrap_err();
    one.changes.publish(draft(1, "a")).await.unwrap_err();
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(one.body(1).as_deref(), Some("a"));
}
