//! A recorder of every message that clients received, so that a test can check all of them against
//! the schemas at its end.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use weir_wire::Revision;

use crate::schemas::{Schemas, Sender};

/// A shared list of messages. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Seen>>>);

/// One message as a client received it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The revision that the client spoke.
    pub revision: Revision,
    /// The method of the request that it answers; empty on a GET stream.
    pub answered: String,
    /// The message.
    pub message: Value,
}

impl Recorder {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// All messages so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds a message.
    pub fn add(&self, seen: Seen) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(seen);
    }

    /// The violations in the recorded messages; empty if there are none.
    pub fn violations(&self, schemas: &Schemas) -> Vec<String> {
        let check = |seen: Seen| {
            schemas
                .check(seen.revision, Sender::Server, &seen.answered, &seen.message)
                .err()
        };
        self.seen().into_iter().filter_map(check).collect()
    }
}
