//! A recorder of every message that clients received, so that a test can check all of them against
//! the schemas at its end.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use weir_wire::Revision;

use crate::schemas::{MessageSender, ProtocolSchemas};

/// A shared list of messages. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct MessageRecorder(Arc<Mutex<Vec<RecordedMessage>>>);

/// One message as a client received it.
#[derive(Clone, Debug)]
pub struct RecordedMessage {
    /// The revision that the client spoke.
    pub revision: Revision,
    /// The method of the request that it answers; empty on a GET stream.
    pub answered_method: String,
    /// The message.
    pub message: Value,
}

impl MessageRecorder {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// All messages so far.
    pub fn messages(&self) -> Vec<RecordedMessage> {
        self.0.lock().clone()
    }

    /// Adds a message.
    pub fn add(&self, seen: RecordedMessage) {
        self.0.lock().push(seen);
    }

    /// The violations in the recorded messages; empty if there are none.
    pub fn violations(&self, schemas: &ProtocolSchemas) -> Vec<String> {
        let check = |seen: RecordedMessage| {
            schemas
                .check(
                    seen.revision,
                    MessageSender::Server,
                    &seen.answered_method,
                    &seen.message,
                )
                .err()
        };
        self.messages().into_iter().filter_map(check).collect()
    }
}
