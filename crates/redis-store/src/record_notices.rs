//! Notices to the other replicas that a record has another owner, or has ended.
//!
//! A replica can have a record that another one took over: that one did not reach it, though both run.
//! A notice only has it look: it writes its copy, and learns from the store that the copy is of no use.
//! After a gap between notices it looks at all of its records.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;
use weir_core::port::{BusMessage, MessageBus, RecordKey, ReplicaId};

use crate::record_seal::{RecordName, record_name};
use crate::record_writer::RecordWriter;

/// The topic of the notices: the replica that sends it, and the name of the record.
const TOPIC: &str = "record-moved";
/// The time for further notices before a look: a replica that ends moves many records at once.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// The bytes of the name of a replica.
const OWN_BYTES: usize = 8;

/// Sends the notices of one replica.
pub(crate) struct RecordNotices {
    bus: Arc<dyn MessageBus>,
    own: ReplicaId,
}

/// The records to look at.
#[derive(Default)]
struct NoticedRecords {
    names: HashSet<RecordName>,
    /// Notices were missed.
    has_gap: bool,
}

impl RecordNotices {
    pub(crate) fn new(bus: Arc<dyn MessageBus>, own: ReplicaId) -> Self {
        Self { bus, own }
    }

    /// The notices of the other replicas, for [`Self::keep_looking`].
    pub(crate) fn subscribe(&self) -> Receiver<BusMessage> {
        self.bus.subscribe(TOPIC)
    }

    /// Has the other replicas look at a record.
    pub(crate) fn send(&self, key: &RecordKey) {
        let body = [self.own.0.as_slice(), &record_name(key)].concat();
        self.bus.publish(BusMessage {
            topic: TOPIC,
            body: Bytes::from(body),
        });
    }

    /// Looks at the records that others moved. It ends with the bus.
    pub(crate) async fn keep_looking(
        own: ReplicaId,
        writer: Arc<RecordWriter>,
        mut notices: Receiver<BusMessage>,
    ) {
        loop {
            let mut noticed = NoticedRecords::default();
            match notices.recv().await {
                Ok(message) => noticed.add(&own, &message.body),
                Err(RecvError::Lagged(_)) => noticed.has_gap = true,
                Err(RecvError::Closed) => return,
            }
            if noticed.is_empty() {
                continue;
            }
            sleep(GATHER_TIME).await;
            loop {
                match notices.try_recv() {
                    Ok(message) => noticed.add(&own, &message.body),
                    Err(TryRecvError::Lagged(_)) => noticed.has_gap = true,
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                }
            }
            writer.write_again(|key| noticed.has(key));
        }
    }
}

impl NoticedRecords {
    fn add(&mut self, own: &ReplicaId, body: &[u8]) {
        if let Some((sender, name)) = body.split_first_chunk::<OWN_BYTES>()
            && *sender != own.0
            && let Ok(name) = name.try_into()
        {
            self.names.insert(name);
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.has_gap
    }

    fn has(&self, key: &RecordKey) -> bool {
        self.has_gap || self.names.contains(&record_name(key))
    }
}
