//! The bus of a single replica: it delivers to the replica itself, and to the processes that it is
//! linked to.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use weir_core::port::{BusMessage, MessageBus};

/// Messages a subscriber may lag behind before it loses the oldest.
const MAX_BUS_LAG: usize = 1024;

/// A bus with one broadcast channel for each topic. Topics are names in the code, so there are few.
#[derive(Default)]
pub struct MemoryBus {
    topics: Mutex<HashMap<&'static str, broadcast::Sender<BusMessage>>>,
    links: Mutex<Vec<(BusLinkId, LinkSender)>>,
}

/// The id of a link to the bus of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusLinkId(pub u64);

/// Sends a message to another process. It never blocks.
type LinkSender = Box<dyn Fn(&BusMessage) + Send + Sync>;

impl MemoryBus {
    /// Sends every message from now on to another process, too.
    pub fn link(&self, id: BusLinkId, send: impl Fn(&BusMessage) + Send + Sync + 'static) {
        self.links.lock().push((id, Box::new(send)));
    }

    /// Ends a link.
    pub fn unlink(&self, id: BusLinkId) {
        self.links.lock().retain(|(known, _)| *known != id);
    }

    /// Takes a message of another process: for the subscribers here, and for the processes behind
    /// the other links. A topic unknown to this bus is dropped.
    pub fn receive(&self, from: BusLinkId, topic: &str, body: Bytes) {
        let topic = self
            .topics
            .lock()
            .keys()
            .find(|known| **known == topic)
            .copied();
        if let Some(topic) = topic {
            self.send(&BusMessage { topic, body }, Some(from));
        }
    }

    fn send(&self, message: &BusMessage, from: Option<BusLinkId>) {
        for (_, send) in self.links.lock().iter().filter(|(id, _)| Some(*id) != from) {
            send(message);
        }
        let sender = self.topics.lock().get(message.topic).cloned();
        if let Some(sender) = sender {
            // Sending fails only without subscribers, and is then not needed.
            let _ = sender.send(message.clone());
        }
    }
}

impl fmt::Debug for MemoryBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBus({} topics)", self.topics.lock().len())
    }
}

impl MessageBus for MemoryBus {
    fn publish(&self, message: BusMessage) {
        self.send(&message, None);
    }

    fn subscribe(&self, topic: &'static str) -> broadcast::Receiver<BusMessage> {
        self.topics
            .lock()
            .entry(topic)
            .or_insert_with(|| broadcast::channel(MAX_BUS_LAG).0)
            .subscribe()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Arc;

    use super::*;

    fn message(topic: &'static str, n: u8) -> BusMessage {
        BusMessage {
            topic,
            body: Bytes::copy_from_slice(&[n]),
        }
    }

    #[tokio::test]
    async fn subscribers_of_a_topic_get_messages_in_order() {
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
    async fn linked_buses_forward_each_message_once() {
        let buses: [Arc<MemoryBus>; 3] = std::array::from_fn(|_| Arc::default());
        let mut heard: Vec<_> = buses.iter().map(|bus| bus.subscribe("cancel")).collect();
        // A chain, as processes that hand over.
        for (at, id) in [(0, BusLinkId(1)), (1, BusLinkId(2))] {
            let (one, next) = (&buses[at], &buses[at + 1]);
            for (from, to) in [(one, next), (next, one)] {
                let to = Arc::downgrade(to);
                from.link(id, move |message| {
                    to.upgrade()
                        .unwrap()
                        .receive(id, message.topic, message.body.clone());
                });
            }
        }
        buses[0].publish(message("cancel", 7));
        for heard in &mut heard {
            assert_eq!(heard.recv().await.unwrap().body[0], 7);
            assert!(heard.try_recv().is_err());
        }
        buses[2].unlink(BusLinkId(2));
        buses[2].publish(message("cancel", 8));
        assert_eq!(
            (
                heard[2].recv().await.unwrap().body[0],
                heard[1].try_recv().is_err()
            ),
            (8, true)
        );
    }

    #[tokio::test]
    async fn lagging_subscriber_loses_the_oldest_and_gets_the_count() {
        let bus = MemoryBus::default();
        let mut slow = bus.subscribe("cancel");
        for n in 0..=MAX_BUS_LAG {
            bus.publish(message("cancel", (n % 256) as u8));
        }
        assert!(matches!(
            slow.recv().await,
            Err(broadcast::error::RecvError::Lagged(1))
        ));
        assert_eq!(slow.recv().await.unwrap().body[0], 1);
    }
}
