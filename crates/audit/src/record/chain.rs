//! The hash chain: each record carries a hash over itself and the hash of the record before. So no
//! record can be changed, dropped, inserted or swapped without breaking those behind it.
//!
//! The hash is `SHA-256(prev || record)`: `prev` as its 64 characters, `record` the line's bytes
//! without the member `hash`, the last one. With a key it is HMAC-SHA256 under that key, and the
//! record names the key.

use std::time::SystemTime;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::record::audit_key::AuditKey;
use crate::record::chain_head::ChainHead;
use crate::record::event::AuditEvent;
use crate::record::record_object::RecordObject;

/// The text before the hash, and the length of a line's last member with it.
pub(super) const HASH: &str = ",\"hash\":\"";
pub(super) const HASH_MEMBER_LEN: usize = HASH.len() + 64 + 2;

/// Makes records out of events, each linked to the one before.
#[derive(Debug)]
pub(crate) struct AuditChain {
    head: ChainHead,
    key: Option<AuditKey>,
    /// Its name, unless it is the chain of the calls.
    name: Option<&'static str>,
}

/// A record in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedRecord {
    /// The line, with its end.
    pub line: String,
    /// The time of the event.
    pub time: SystemTime,
    /// Its number.
    pub seq: u64,
    /// The kind of the event.
    pub kind: &'static str,
    /// True for a refusal or a failure.
    pub trouble: bool,
    /// The trace that it belongs to.
    pub trace: Option<String>,
}

impl AuditChain {
    /// Continues a chain after `head`.
    #[must_use]
    pub(crate) fn after(head: ChainHead, key: Option<AuditKey>) -> Self {
        Self {
            head,
            key,
            name: None,
        }
    }

    /// The same with a name, written in every record.
    #[must_use]
    pub(crate) fn named(self, name: Option<&'static str>) -> Self {
        Self { name, ..self }
    }

    /// The current end of the chain.
    #[must_use]
    pub(crate) fn head(&self) -> &ChainHead {
        &self.head
    }

    /// Makes an event the next record. It is part of the chain from here on: it must be stored
    /// before the next one.
    pub(crate) fn seal(&mut self, event: &AuditEvent) -> SealedRecord {
        let mut line = String::with_capacity(768);
        let mut record = RecordObject::begin(&mut line);
        let seq = self.head.seq + 1;
        record.number("seq", seq);
        record.optional_text("chain", self.name);
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
        self.head = ChainHead { seq, hash };
        SealedRecord {
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
pub(super) fn hash(key: Option<&AuditKey>, prev: &str, record: &[u8]) -> String {
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
