//! The link between the bus of this replica and those of the others, over a channel of the shared
//! store. Messages are not kept: a replica that is not connected misses them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use opentelemetry::KeyValue;
use redis::aio::PubSub;
use redis::{RedisResult, cmd};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use weir_core::port::{BusMessage, ReplicaId, StoreError};
use weir_core::telemetry::instruments;
use weir_store::{BusLinkId, MemoryBus};

use crate::bus_frame::{decode_frame, encode_frame};
use crate::jitter::Backoff;
use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink};

/// The link's id at the bus. Links to other processes count from zero.
const LINK_ID: BusLinkId = BusLinkId(u64::MAX);
/// The longest body. Messages are notices, not contents.
const MAX_BODY_BYTES: usize = 8 << 10;
/// Messages that wait to be sent.
const MAX_WAITING: usize = 4096;
/// Messages of one frame.
const MAX_FRAME_MESSAGES: usize = 64;
/// The time after which a message that could not be sent is dropped.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time to subscribe.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The silence after which the subscription is checked.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// The bounds of the pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Sends the messages of a bus to the other replicas, and receives theirs.
pub(crate) struct SharedBus {
    link: Arc<RedisLink>,
    channel: String,
    own: ReplicaId,
    bus: Weak<MemoryBus>,
    /// The number of times that messages of others began to arrive.
    subscriptions: watch::Sender<u64>,
}

impl SharedBus {
    /// Links `bus`. Returns the messages to send, for [`Self::keep_sending`].
    pub(crate) fn link(
        link: Arc<RedisLink>,
        namespace: &str,
        own: ReplicaId,
        bus: &Arc<MemoryBus>,
    ) -> (Self, mpsc::Receiver<BusMessage>) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        bus.link(LINK_ID, move |message| {
            if message.body.len() > MAX_BODY_BYTES {
                let bytes = message.body.len();
                tracing::warn!(
                    topic = message.topic,
                    bytes,
                    "message to replicas too large"
                );
                count_dropped(1);
            } else if sender.try_send(message.clone()).is_err() {
                count_dropped(1);
            }
        });
        let shared = Self {
            link,
            channel: format!("{namespace}:bus"),
            own,
            bus: Arc::downgrade(bus),
            subscriptions: watch::Sender::new(0),
        };
        (shared, waiting)
    }

    /// The number of times that messages of others began to arrive. Those before are lost.
    pub(crate) fn subscriptions(&self) -> watch::Receiver<u64> {
        self.subscriptions.subscribe()
    }

    /// Ends the link of a bus.
    pub(crate) fn unlink(bus: &MemoryBus) {
        bus.unlink(LINK_ID);
    }

    /// Sends the messages of this replica, until its bus ends.
    pub(crate) async fn keep_sending(&self, mut waiting: mpsc::Receiver<BusMessage>) {
        let mut messages = Vec::with_capacity(MAX_FRAME_MESSAGES);
        while waiting.recv_many(&mut messages, MAX_FRAME_MESSAGES).await > 0 {
            let frame = encode_frame(&self.own, &messages);
            if self.send(&frame).await.is_err() {
                count_dropped(messages.len());
            }
            messages.clear();
        }
    }

    /// Sends a frame, several times if the store does not answer.
    async fn send(&self, frame: &[u8]) -> Result<(), StoreError> {
        let mut publish = cmd("PUBLISH");
        publish.arg(&self.channel).arg(frame);
        let mut backoff = Backoff::new(self.link.random().clone(), FIRST_PAUSE, LONGEST_PAUSE);
        let until = Instant::now() + SEND_TIMEOUT;
        loop {
            let outcome = self
                .link
                .query("publish", BACKGROUND_TIMEOUT, &publish)
                .await;
            if outcome.is_ok() || Instant::now() >= until {
                return outcome;
            }
            sleep(backoff.next_wait()).await;
        }
    }

    /// Receives the messages of the other replicas. It ends with the bus.
    pub(crate) async fn keep_receiving(&self) {
        let mut backoff = Backoff::new(self.link.random().clone(), FIRST_PAUSE, LONGEST_PAUSE);
        while self.bus.strong_count() > 0 {
            match timeout(SUBSCRIBE_TIMEOUT, self.subscribe()).await {
                Ok(Ok(subscription)) => {
                    backoff.reset();
                    self.subscriptions.send_modify(|times| *times += 1);
                    self.receive(subscription).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "subscription to replicas failed"),
                Err(_) => tracing::debug!("subscription to replicas timed out"),
            }
            sleep(backoff.next_wait()).await;
        }
    }

    async fn subscribe(&self) -> RedisResult<PubSub> {
        let mut subscription = self.link.client().open_subscriber().await?;
        subscription.subscribe(&self.channel).await?;
        Ok(subscription)
    }

    /// Receives until the connection is lost.
    async fn receive(&self, subscription: PubSub) {
        let (mut commands, mut messages) = subscription.split();
        loop {
            match timeout(PING_INTERVAL, messages.next()).await {
                Ok(Some(message)) => {
                    let frame = Bytes::copy_from_slice(message.get_payload_bytes());
                    let Some(bus) = self.bus.upgrade() else {
                        return;
                    };
                    for received in decode_frame(&self.own, frame) {
                        bus.receive(LINK_ID, &received.topic, received.body);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    let ping = timeout(BACKGROUND_TIMEOUT, commands.ping::<redis::Value>()).await;
                    if !matches!(ping, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

fn count_dropped(messages: usize) {
    let labels = [KeyValue::new("kind", "message")];
    instruments().store_dropped.add(messages as u64, &labels);
}
