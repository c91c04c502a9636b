//! The use of a store by two replicas, whatever servers it has.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};
use weir_core::port::{BusMessage, ListAnnouncements as _, MessageBus as _};
use weir_store::MemoryBus;

use super::list_tests::{announced, group};
use super::replica::{FoundPlace, TestReplica, here, key, wait_for};
use crate::RedisSettings;

const PATIENCE: Duration = Duration::from_secs(40);

/// The bus of one replica, and the messages that reach another one.
pub(super) struct BusPair {
    sender: Arc<MemoryBus>,
    heard: broadcast::Receiver<BusMessage>,
    _receiver: Arc<MemoryBus>,
}

impl BusPair {
    /// Links the buses of two replicas.
    pub(super) fn link(one: &TestReplica, two: &TestReplica) -> Self {
        let [sender, receiver]: [Arc<MemoryBus>; 2] = std::array::from_fn(|_| Arc::default());
        one.store.link_bus(&sender);
        two.store.link_bus(&receiver);
        Self {
            sender,
            heard: receiver.subscribe("cancel"),
            _receiver: receiver,
        }
    }

    /// Sends a message again and again until it is heard: the subscription may come later than the
    /// first ones.
    pub(super) async fn expect_message(&mut self, body: &'static str) {
        let begun = Instant::now();
        loop {
            let message = BusMessage {
                topic: "cancel",
                body: body.into(),
            };
            self.sender.publish(message.clone());
            match timeout(Duration::from_millis(200), self.heard.recv()).await {
                Ok(Ok(received)) if received == message => return,
                _ => assert!(begun.elapsed() < PATIENCE, "no message"),
            }
        }
    }
}

/// A session moves from an ended replica to another one; a message and changed lists reach both.
pub(super) async fn share_session_and_message(settings: &RedisSettings) {
    let one = TestReplica::start_with(settings, 1).await;
    let two = TestReplica::start_with(settings, 2).await;
    two.wait_live(&[&one]).await;
    let mut buses = BusPair::link(&one, &two);
    one.open(&key(1), "value").await;
    let elsewhere = FoundPlace::Elsewhere(one.id.clone());
    assert_eq!(two.locate(&key(1), &one).await, elsewhere);
    buses.expect_message("body").await;
    let lists = announced(1);
    let announcements = one.store.lists();
    let outcome = announcements.announce(&group("files"), lists).await;
    outcome.expect("the lists are written");
    let seen = two.store.lists().watch();
    let is_seen = || seen.borrow().get(&group("files")).map(|one| one.lists) == Some(lists);
    wait_for("the lists", is_seen).await;
    assert_eq!(one.store.begin_drain().await, 0);
    one.store.shutdown().await;
    wait_for("absence", || two.seen(&one).is_none()).await;
    assert_eq!(two.locate(&key(1), &one).await, here("value"));
}
