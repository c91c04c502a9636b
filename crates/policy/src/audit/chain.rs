//! The chain: each record carries a hash over itself and the hash of the one before, so that nobody
//! changes, drops, inserts or swaps one without breaking what follows.
//!
//! The hash is `SHA-256(prev || record)`: `prev` as its 64 characters, `record` the line's bytes
//! without the member `hash`, which stands last. With a key it is HMAC-SHA256 under that key, and
//! the record names the key.

use std::time::SystemTime;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::event::Event;
use super::json::Object;
use super::key::Key;

/// What stands before the hash, and how long a line's last member is with it.
pub(super) const HASH: &str = ",\"hash\":\"";
pub(super) const TAIL: usize = HASH.len() + 64 + 2;

/// The end of a chain: what the next record hangs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the last record. The first has 1.
    pub seq: u64,
    /// Its hash: 64 hexadecimal characters.
    pub hash: String,
}

impl Head {
    /// Before the first record.
    #[must_use]
    pub fn genesis() -> Self {
        Self {
            seq: 0,
            hash: "0".repeat(64),
        }
    }

    /// Reads what [`std::fmt::Display`] wrote: the number, a colon and the hash.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (seq, hash) = text.split_once(':')?;
        let is_hash =
            hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        Some(Self {
            seq: seq.parse().ok()?,
            hash: hash.to_owned(),
        })
        .filter(|_| is_hash)
    }
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// Makes records out of events, each hung on the one before.
#[derive(Debug)]
pub struct Chain {
    head: Head,
    key: Option<Key>,
    /// Its name, where it is not the chain of the calls.
    name: Option<&'static str>,
}

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The line, with its end.
    pub line: String,
    /// When it happened.
    pub time: SystemTime,
    /// Its number.
    pub seq: u64,
    /// What kind of event it is.
    pub kind: &'static str,
    /// Whether something was refused, or did not go well.
    pub trouble: bool,
    /// The trace it belongs to.
    pub trace: Option<String>,
}

impl Chain {
    /// Goes on after `head`.
    #[must_use]
    pub fn after(head: Head, key: Option<Key>) -> Self {
        Self {
            head,
            key,
            name: None,
        }
    }

    /// The same with a name, which stands in every record.
    #[must_use]
    pub fn named(self, name: Option<&'static str>) -> Self {
        Self { name, ..self }
    }

    /// Where the chain ends now.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Makes an event the next record. It is part of the chain from here on: it must be kept before
    /// the next one is.
    pub fn seal(&mut self, event: &Event) -> Sealed {
        let mut line = String::with_capacity(768);
        let mut record = Object::begin(&mut line);
        let seq = self.head.seq + 1;
        record.number("seq", seq);
        record.maybe("chain", self.name);
        event.write(&mut record);
        if let Some(key) = &self.key {
            record.number("key", key.id().into());
        }
        record.text("prev", &self.head.hash);
        record.end();
        let hash = hash(self.key.as_ref(), &self.head.hash, line.as_bytes());
        line.truncate(line.len() - 1);
        line.push_str(HASH);
        line.push_str(&hash);
        line.push_str("\"}\n");
        self.head = Head { seq, hash };
        Sealed {
            line,
            time: event.time(),
            seq,
            kind: event.kind(),
            trouble: event.is_trouble(),
            trace: event.trace().map(str::to_owned),
        }
    }
}

/// The hash of a record: see the module.
pub(super) fn hash(key: Option<&Key>, prev: &str, record: &[u8]) -> String {
    let digest: [u8; 32] = match key {
        Some(key) => key.sign(&[prev.as_bytes(), record]),
        None => Sha256::new()
            .chain_update(prev)
            .chain_update(record)
            .finalize()
            .into(),
    };
    HEXLOWER.encode(&digest)
}
