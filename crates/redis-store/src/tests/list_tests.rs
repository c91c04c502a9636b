//! Announced lists of several replicas.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::names::UpstreamId;
use weir_core::port::{AnnouncedLists, ListAnnouncements as _, ListDigests, ListGroup};
use weir_replica_testkit::RedisServer;
use weir_store::MemoryBus;

use super::replica::{TestReplica, old_server, settings, wait_for};
use crate::{RedisLists, RedisSettings, RedisTopology};

const VERSIONS: &str = "{test:lists}:versions";
const DIGESTS: &str = "{test:lists}:digests";

/// A replica, its bus, and the lists that it knows.
struct ListReplica {
    replica: TestReplica,
    lists: Arc<RedisLists>,
    _bus: Arc<MemoryBus>,
}

impl ListReplica {
    async fn start(server: &RedisServer, number: u8) -> Self {
        let replica = TestReplica::start(server, number).await;
        let bus = Arc::<MemoryBus>::default();
        replica.store.link_bus(&bus);
        let lists = replica.store.lists();
        let _bus = bus;
        Self {
            replica,
            lists,
            _bus,
        }
    }

    async fn announce(&self, name: &str, byte: u8) {
        let announced = announced(byte);
        self.lists.announce(&group(name), announced).await.unwrap();
    }

    fn known(&self, name: &str) -> Option<AnnouncedLists> {
        self.lists.watch().borrow().get(&group(name)).copied()
    }

    async fn wait_known(&self, name: &str, byte: u8) -> AnnouncedLists {
        let wanted = announced(byte);
        let is_known = || self.known(name).map(|known| known.lists) == Some(wanted);
        wait_for(&format!("{name} {byte}"), is_known).await;
        self.known(name).unwrap()
    }
}

pub(super) fn group(name: &str) -> ListGroup {
    ListGroup {
        upstream: UpstreamId::new(name).expect("a valid name"),
        class: CapabilityClass::SAMPLING,
    }
}

pub(super) fn announced(byte: u8) -> ListDigests {
    ListDigests {
        digests: [ContentVersion([byte; 16]); 4],
        hops: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_has_a_greater_version_and_the_same_lists_none() {
    let server = old_server();
    let one = ListReplica::start(&server, 1).await;
    let two = ListReplica::start(&server, 2).await;
    one.announce("files", 1).await;
    let first = two.wait_known("files", 1).await;
    // The lists of the second replica are the same, and another upstream has its own.
    two.announce("files", 1).await;
    two.announce("search", 1).await;
    let other = one.wait_known("search", 1).await;
    assert!(other.version > first.version);
    assert_eq!(one.known("files"), Some(first));
    two.announce("files", 2).await;
    let second = one.wait_known("files", 2).await;
    assert!(second.version > other.version);
    one.announce("files", 1).await;
    let third = two.wait_known("files", 1).await;
    assert!(third.version > second.version, "a change back is a change");
    assert_eq!(server.run(&["ZCARD", VERSIONS]).text(), "2");
    for key in [VERSIONS, DIGESTS] {
        let left: i64 = server.run(&["PTTL", key]).text().parse().unwrap();
        assert!(left > 0, "{key} has an end");
    }
    // A replica that starts later learns of all.
    let three = ListReplica::start(&server, 3).await;
    assert_eq!(three.wait_known("files", 1).await, third);
    assert_eq!(three.wait_known("search", 1).await, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_announced_again_after_an_outage_and_a_loss_of_data() {
    let mut server = old_server();
    let one = ListReplica::start(&server, 1).await;
    let two = ListReplica::start(&server, 2).await;
    one.announce("files", 1).await;
    two.wait_known("files", 1).await;
    server.kill();
    let files = group("files");
    let failed = one.lists.announce(&files, announced(2)).await;
    assert!(failed.is_err());
    server.restart_empty();
    two.wait_known("files", 2).await;
    server.flush();
    let is_there = || server.keys().iter().any(|key| key == DIGESTS);
    wait_for("the announcements", is_there).await;
    two.announce("search", 7).await;
    one.wait_known("search", 7).await;
    assert!(one.replica.store.status().is_connected);
}

/// The store loses its data between the writing of lists and the next look at it.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_lost_before_the_first_look_are_announced_again() {
    let server = old_server();
    let one = ListReplica::start(&server, 1).await;
    wait_for("a look at an empty store", || {
        server.command_counts().contains_key("zrangebyscore")
    })
    .await;
    one.announce("files", 1).await;
    server.run(&["DEL", VERSIONS, DIGESTS]);
    let is_there = || server.keys().iter().any(|key| key == DIGESTS);
    wait_for("the announcement", is_there).await;
}

/// Values of a later version of weir, and damaged ones, are no lists; they harm no others.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_values_are_left_out() {
    let server = old_server();
    let strange = [("0000:files", "9:0:abc"), ("ffff:files", "1:0:"), ("x", "")];
    for (at, (field, value)) in strange.iter().enumerate() {
        server.run(&["ZADD", VERSIONS, &(at + 1).to_string(), field]);
        server.run(&["HSET", DIGESTS, field, value]);
    }
    server.run(&["ZADD", VERSIONS, "9", "0000:absent"]);
    let one = ListReplica::start(&server, 1).await;
    let two = ListReplica::start(&server, 2).await;
    one.announce("search", 3).await;
    two.wait_known("search", 3).await;
    assert_eq!(two.lists.watch().borrow().len(), 1);
    // Versions as old as these are over.
    assert_eq!(server.run(&["ZCARD", VERSIONS]).text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_announced_though_the_server_answers_too_late_for_requests() {
    let server = old_server();
    let impatient = RedisSettings {
        command_timeout: Duration::from_millis(50),
        ..settings(&server.url(), RedisTopology::Single)
    };
    let one = TestReplica::start_with(&impatient, 1).await;
    let lists = one.store.lists();
    server.run(&["CLIENT", "PAUSE", "300", "ALL"]);
    lists.announce(&group("files"), announced(1)).await.unwrap();
}
