//! The names of replay logs in the shared store, and the values of their fields.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use weir_core::port::StreamKey;

use crate::store_seal::StoreSeal;

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
pub(crate) struct ReplaySeal(pub(crate) StoreSeal);

impl ReplaySeal {
    /// The name of a log in the shared store.
    pub(crate) fn shared_name(&self, key: StreamKey) -> String {
        let session = HEXLOWER.encode(&key.session.0);
        self.0.name(format_args!("e:{session}{:016x}", key.stream))
    }

    /// Seals the value of a field, so that it opens for this field of this log alone.
    pub(crate) fn seal(&self, key: StreamKey, field: ReplayField, value: &[u8]) -> String {
        self.0.seal(&purpose(key, field), value)
    }

    /// Opens a sealed value of this field; `None` if it was changed.
    pub(crate) fn open(&self, key: StreamKey, field: ReplayField, text: &str) -> Option<Bytes> {
        self.0.open(&purpose(key, field), text)
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
