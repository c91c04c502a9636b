//! Notices to the other replicas that a record has another owner, or has ended.
//!
//! A replica can have a record that another one took over: that one did not reach it, though both run.
//! A notice only has it look: it writes its copy, and learns from the store that the copy is of no use.
//! After a gap between notices it looks at all of its records.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::broadcast::Receiver;
use weir_core::port::{BusMessage, MessageBus, RecordKey, ReplicaId};

use crate::record_seal::record_name;

/// The topic of the notices: the replica that sends it, and the name of the record.
const TOPIC: &str = "record-moved";
/// The bytes of the name of a replica.
pub(crate) const OWN_BYTES: usize = 8;

/// Sends the notices of one replica.
pub(crate) struct RecordNotices {
    bus: Arc<dyn MessageBus>,
    own: ReplicaId,
}

impl RecordNotices {
    pub(crate) fn new(bus: Arc<dyn MessageBus>, own: ReplicaId) -> Self {
        Self { bus, own }
    }

    /// The notices of the other replicas, for [`keep_looking`](crate::record_looks::keep_looking).
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
}
