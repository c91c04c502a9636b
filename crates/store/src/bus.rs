//! The bus and the mailbox of a lone replica: what it tells everybody, it tells itself.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::{broadcast, mpsc};
use weir_core::port::{Bus, BusMessage, Fut, Mailbox, Random, ReplicaId, StoreError};

use crate::lock;

/// Messages a subscriber may lag behind before it loses the oldest.
const BACKLOG: usize = 1024;

/// A broadcast channel a topic. Topics are names in the code, so there are few.
#[derive(Debug, Default)]
pub struct MemoryBus {
    topics: Mutex<HashMap<&'static str, broadcast::Sender<BusMessage>>>,
}

impl Bus for MemoryBus {
    fn publish(&self, message: BusMessage) {
        let sender = lock(&self.topics).get(message.topic).cloned();
        if let Some(sender) = sender {
            // It fails only where nobody listens, and then nobody has to be told.
            let _ = sender.send(message);
        }
    }

    fn subscribe(&self, topic: &'static str) -> broadcast::Receiver<BusMessage> {
        lock(&self.topics).entry(topic).or_insert_with(|| broadcast::channel(BACKLOG).0).subscribe()
    }
}

/// The mailbox of a lone replica: it knows no other, so only what it sends to itself arrives.
#[derive(Debug)]
pub struct MemoryMailbox {
    own: ReplicaId,
    sender: mpsc::Sender<BusMessage>,
    receiver: Mutex<Option<mpsc::Receiver<BusMessage>>>,
}

impl MemoryMailbox {
    /// A mailbox under a fresh random name.
    #[must_use]
    pub fn new(random: &dyn Random) -> Self {
        let mut own = [0; 8];
        random.fill(&mut own);
        let (sender, receiver) = mpsc::channel(BACKLOG);
        Self { own: ReplicaId(own), sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Mailbox for MemoryMailbox {
    fn own(&self) -> &ReplicaId {
        &self.own
    }

    fn send<'a>(&'a self, to: &'a ReplicaId, message: BusMessage) -> Fut<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            if *to != self.own {
                return Ok(false);
            }
            match self.sender.try_send(message) {
                Ok(()) => Ok(true),
                Err(mpsc::error::TrySendError::Full(_)) => Err(StoreError("this replica's mailbox is full".into())),
                Err(mpsc::error::TrySendError::Closed(_)) => Ok(false),
            }
        })
    }

    fn receive(&self) -> Option<mpsc::Receiver<BusMessage>> {
        lock(&self.receiver).take()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;

    use super::*;
    use crate::fake::FakeRandom;

    fn message(topic: &'static str, n: u8) -> BusMessage {
        BusMessage { topic, body: Bytes::copy_from_slice(&[n]) }
    }

    #[tokio::test]
    async fn the_bus_tells_subscribers_of_the_topic_in_order() {
        let bus = MemoryBus::default();
        bus.publish(message("cancel", 0));
        let mut one = bus.subscribe("cancel");
        let mut other = bus.subscribe("change");
        bus.publish(message("cancel", 1));
        bus.publish(message("cancel", 2));
        assert_eq!(one.recv().await.unwrap().body[0], 1);
        assert_eq!(one.recv().await.unwrap().body[0], 2);
        assert!(other.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_lagging_subscriber_loses_the_oldest_and_is_told() {
        let bus = MemoryBus::default();
        let mut slow = bus.subscribe("cancel");
        for n in 0..=BACKLOG {
            bus.publish(message("cancel", (n % 256) as u8));
        }
        assert!(matches!(slow.recv().await, Err(broadcast::error::RecvError::Lagged(1))));
        assert_eq!(slow.recv().await.unwrap().body[0], 1);
    }

    #[tokio::test]
    async fn a_mailbox_reaches_itself_alone_and_has_one_receiver() {
        let mailbox = MemoryMailbox::new(&FakeRandom::default());
        let mut receiver = mailbox.receive().unwrap();
        assert!(mailbox.receive().is_none());
        assert!(mailbox.send(&mailbox.own().clone(), message("a", 7)).await.unwrap());
        assert!(!mailbox.send(&ReplicaId([9; 8]), message("a", 8)).await.unwrap());
        assert_eq!(receiver.recv().await.unwrap().body[0], 7);
        drop(receiver);
        assert!(!mailbox.send(&mailbox.own().clone(), message("a", 9)).await.unwrap());
    }
}
