//! The names of replay logs in the shared store, and the values of their fields.

use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use weir_core::port::{Random, StreamKey};
use weir_core::seal::Sealer;

/// A field of a replay log. The name of an event is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayField {
    /// The event in place of an answer that is lost.
    LostAnswer,
    /// An event.
    Event(u64),
    /// The number of the last event of a stream that has ended.
    End,
}

impl ReplayField {
    /// The name of the field.
    pub(crate) fn name(self) -> String {
        match self {
            Self::LostAnswer => "lost".to_owned(),
            Self::Event(seq) => seq.to_string(),
            Self::End => "end".to_owned(),
        }
    }

    /// The field of a name; `None` for one of a later version.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        match name {
            "lost" => Some(Self::LostAnswer),
            "end" => Some(Self::End),
            number => number.parse().ok().map(Self::Event),
        }
    }
}

/// Names replay logs in the shared store, and seals their fields for it.
pub(crate) struct ReplaySeal {
    namespace: String,
    sealer: Sealer,
    random: Arc<dyn Random>,
}

impl ReplaySeal {
    /// Names and seals within a namespace.
    pub(crate) fn new(namespace: String, sealer: Sealer, random: Arc<dyn Random>) -> Self {
        Self {
            namespace,
            sealer,
            random,
        }
    }

    /// The name of a log in the shared store.
    pub(crate) fn shared_name(&self, key: StreamKey) -> String {
        let session = HEXLOWER.encode(&key.session.0);
        format!("{}:e:{session}{:016x}", self.namespace, key.stream)
    }

    /// Seals the value of a field, so that it opens for this field of this log alone.
    pub(crate) fn seal(&self, key: StreamKey, field: ReplayField, value: &[u8]) -> String {
        self.sealer.seal(&*self.random, &purpose(key, field), value)
    }

    /// Opens a sealed value of this field; `None` if it was changed.
    pub(crate) fn open(&self, key: StreamKey, field: ReplayField, text: &str) -> Option<Bytes> {
        let opened = self.sealer.open(&purpose(key, field), text);
        opened.ok().map(Bytes::from)
    }
}

fn purpose(key: StreamKey, field: ReplayField) -> Vec<u8> {
    [
        b"weir shared replay log ".as_slice(),
        &key.session.0,
        &key.stream.to_be_bytes(),
        field.name().as_bytes(),
    ]
    .concat()
}
