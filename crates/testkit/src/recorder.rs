//! Remembers every message that clients saw, so that a test can end by asking whether all of them
//! obey the schemas.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use weir_wire::Revision;

use crate::schemas::{Schemas, Sender};

/// A shared list of messages. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Seen>>>);

/// One message as a client saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The revision that the client spoke.
    pub revision: Revision,
    /// The method of the request on whose answer it came; empty on a GET stream.
    pub answered: String,
    /// The message.
    pub message: Value,
}

impl Recorder {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything seen so far.
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

    /// What is wrong with the messages seen; empty when nothing is.
    pub fn violations(&self, schemas: &Schemas) -> Vec<String> {
        let check = |seen: Seen| {
            schemas
                .check(seen.revision, Sender::Server, &seen.answered, &seen.message)
                .err()
        };
        self.seen().into_iter().filter_map(check).collect()
    }
}
