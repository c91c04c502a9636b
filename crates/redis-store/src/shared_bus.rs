//! The link between the bus of this replica and those of the others, over a channel of the shared
//! store. Messages are not kept: a replica that is not connected misses them, and notices it by the
//! numbers of frames.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use opentelemetry::KeyValue;
use redis::aio::PubSub;
use redis::{RedisResult, cmd};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use weir_core::port::{BusMessage, ReplicaDirectory as _, StoreError};
use weir_core::telemetry::instruments;
use weir_store::{BusLinkId, MemoryBus, ReceivedFrames};

use crate::bus_frame::{decode_frame, encode_frame};
use crate::pauses::{STORE_BACKOFF, next_pause};
use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink};
use crate::replica_registry::ReplicaRegistry;

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
/// The longest time of one attempt to subscribe.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without a subscription that is logged as a warning.
const SUBSCRIPTION_MISSING: Duration = Duration::from_secs(10);
/// The silence after which the subscription is checked.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// The time after a heartbeat in which the frames that it announces arrive: they take another
/// connection.
const ARRIVAL_TIME: Duration = Duration::from_millis(250);
/// Sends the messages of a bus to the other replicas, and receives theirs.
pub(crate) struct SharedBus {
    link: Arc<RedisLink>,
    channel: String,
    registry: Arc<ReplicaRegistry>,
    bus: Weak<MemoryBus>,
    received: ReceivedFrames,
    /// The number of gaps in the messages of others.
    gaps: watch::Sender<u64>,
}

impl SharedBus {
    /// Links `bus`. `gaps` counts the gaps in the messages of others: the times before a
    /// subscription, and frames that did not arrive. Returns the messages to send, for
    /// [`Self::keep_sending`].
    pub(crate) fn link(
        link: Arc<RedisLink>,
        namespace: &str,
        registry: Arc<ReplicaRegistry>,
        bus: &Arc<MemoryBus>,
        gaps: watch::Sender<u64>,
    ) -> (Self, mpsc::Receiver<BusMessage>) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let sent = registry.sent_frames().clone();
        bus.link(LINK_ID, move |message| {
            if message.body.len() > MAX_BODY_BYTES {
                let bytes = message.body.len();
                tracing::warn!(
                    topic = message.topic,
                    bytes,
                    "message to replicas too large"
                );
                sent.skip();
                count_dropped(1);
            } else if sender.try_send(message.clone()).is_err() {
                sent.skip();
                count_dropped(1);
            }
        });
        let shared = Self {
            link,
            channel: format!("{namespace}:bus"),
            registry,
            bus: Arc::downgrade(bus),
            received: ReceivedFrames::default(),
            gaps,
        };
        (shared, waiting)
    }

    /// Ends the link of a bus.
    pub(crate) fn unlink(bus: &MemoryBus) {
        bus.unlink(LINK_ID);
    }

    /// Sends the messages of this replica, until its bus ends.
    pub(crate) async fn keep_sending(&self, mut waiting: mpsc::Receiver<BusMessage>) {
        let mut messages = Vec::with_capacity(MAX_FRAME_MESSAGES);
        while waiting.recv_many(&mut messages, MAX_FRAME_MESSAGES).await > 0 {
            let sent = self.registry.sent_frames();
            let number = sent.next_number();
            let frame = encode_frame(self.registry.own(), Some(number), &messages);
            if self.send(&frame).await.is_err() {
                count_dropped(messages.len());
            }
            sent.end(number);
            messages.clear();
        }
    }

    /// Sends a frame, several times if the store does not answer.
    async fn send(&self, frame: &[u8]) -> Result<(), StoreError> {
        let mut publish = cmd("PUBLISH");
        publish.arg(&self.channel).arg(frame);
        let mut backoff = STORE_BACKOFF;
        let until = Instant::now() + SEND_TIMEOUT;
        loop {
            let outcome = self
                .link
                .query("publish", BACKGROUND_TIMEOUT, &publish)
                .await;
            if outcome.is_ok() || Instant::now() >= until {
                return outcome;
            }
            sleep(next_pause(&mut backoff, self.link.random())).await;
        }
    }

    /// Receives the messages of the other replicas. It ends with the bus.
    pub(crate) async fn keep_receiving(&self) {
        let mut backoff = STORE_BACKOFF;
        let mut outage = SubscriptionOutage::begin();
        while self.bus.strong_count() > 0 {
            match timeout(SUBSCRIBE_TIMEOUT, self.subscribe()).await {
                Ok(Ok(subscription)) => {
                    backoff.reset();
                    outage.end();
                    self.gaps.send_modify(|gaps| *gaps += 1);
                    self.receive(subscription).await;
                    outage = SubscriptionOutage::begin();
                }
                Ok(Err(error)) => outage.note_failure(&error.to_string()),
                Err(_) => outage.note_failure("no answer in time"),
            }
            sleep(next_pause(&mut backoff, self.link.random())).await;
        }
    }

    async fn subscribe(&self) -> RedisResult<PubSub> {
        self.link.client().subscribe(&self.channel).await
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
                    let Some(received) = decode_frame(self.registry.own(), frame) else {
                        continue;
                    };
                    for message in received.messages {
                        bus.receive(LINK_ID, &message.topic, message.body);
                    }
                    if let Some(number) = received.number {
                        self.report_missed(self.received.note_arrival(received.sender, number));
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

    /// Compares the frames that heartbeats of other replicas announce with those that arrived. It
    /// never ends.
    pub(crate) async fn keep_comparing(&self) {
        let mut announced = self.registry.announced_frames();
        while announced.changed().await.is_ok() {
            let numbers = announced.borrow_and_update().clone();
            sleep(ARRIVAL_TIME).await;
            self.report_missed(self.received.compare(&numbers));
        }
    }

    fn report_missed(&self, frames: u64) {
        if frames > 0 {
            tracing::info!(frames, "messages of other replicas missed");
            instruments().store_missed.add(frames, &[]);
            self.gaps.send_modify(|gaps| *gaps += 1);
        }
    }
}

/// A time without a subscription. It is logged once it is long.
struct SubscriptionOutage {
    since: Instant,
    is_logged: bool,
}

impl SubscriptionOutage {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            is_logged: false,
        }
    }

    fn note_failure(&mut self, error: &str) {
        tracing::debug!(error, "subscription to replicas failed");
        if !self.is_logged && self.since.elapsed() >= SUBSCRIPTION_MISSING {
            self.is_logged = true;
            tracing::warn!(error, "no subscription to messages of other replicas");
        }
    }

    fn end(&self) {
        if self.is_logged {
            tracing::info!("subscription to messages of other replicas restored");
        }
    }
}

fn count_dropped(messages: usize) {
    let labels = [KeyValue::new("kind", "message")];
    instruments().store_dropped.add(messages as u64, &labels);
}
