//! The names and the values of records as the shared store has them.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use weir_core::port::RecordKey;

use crate::store_seal::StoreSeal;

/// The layout of values: the first byte of the sealed bytes. A value of a layout that is not known
/// here counts as missing.
const LAYOUT: u8 = 1;

/// Marks the names of sessions' records. Stored data has it, so that it stays.
const MARK: char = 's';

/// The digest of the principal, the mark and the id of a record: a key of maps that keeps no
/// principal in memory.
pub(crate) type RecordName = [u8; 33];

/// Returns the packed name of a record.
pub(crate) fn record_name(key: &RecordKey) -> RecordName {
    let mut name = [0; 33];
    name[..16].copy_from_slice(key.principal.digest());
    name[16] = MARK as u8;
    name[17..].copy_from_slice(&key.id);
    name
}

/// Names records in the shared store, and seals their values for it.
pub(crate) struct RecordSeal(pub(crate) StoreSeal);

impl RecordSeal {
    /// The name of a record in the shared store.
    pub(crate) fn shared_name(&self, key: &RecordKey) -> String {
        let digest = HEXLOWER.encode(key.principal.digest());
        let id = HEXLOWER.encode(&key.id);
        self.0.name(format_args!("{MARK}:{digest}{id}"))
    }

    /// Seals a value, so that it opens for this record alone.
    pub(crate) fn seal(&self, key: &RecordKey, value: &[u8]) -> String {
        let mut plain = Vec::with_capacity(1 + value.len());
        plain.push(LAYOUT);
        plain.extend_from_slice(value);
        self.0.seal(&purpose(key), &plain)
    }

    /// Opens a sealed value of this record; `None` if it was changed or has another layout.
    pub(crate) fn open(&self, key: &RecordKey, text: &str) -> Option<Bytes> {
        let plain = self.0.open(&purpose(key), text)?;
        (plain.first() == Some(&LAYOUT)).then(|| plain.slice(1..))
    }
}

fn purpose(key: &RecordKey) -> Vec<u8> {
    [b"weir shared record ".as_slice(), &record_name(key)].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Arc;

    use weir_core::Principal;
    use weir_seal::Sealer;
    use weir_testkit::FakeRandom;

    use super::*;

    #[test]
    fn value_opens_for_its_record_alone() {
        let random = Arc::new(FakeRandom::new(1));
        let sealer = Sealer::ephemeral(&*random);
        let seal = StoreSeal::new("ns".to_owned(), sealer.clone(), random.clone());
        let seal = RecordSeal(seal);
        let key = |name, id| RecordKey {
            principal: Principal::owner(Some(("iss", name))),
            id: [id; 16],
        };
        let text = seal.seal(&key("ada", 1), b"value");
        assert_eq!(seal.open(&key("ada", 1), &text).unwrap(), "value");
        assert_eq!(seal.open(&key("ada", 2), &text), None);
        assert_eq!(seal.open(&key("bob", 1), &text), None);
        assert_eq!(seal.open(&key("ada", 1), "AAAA"), None);
        let later = sealer.seal(&*random, &purpose(&key("ada", 1)), b"\x02value");
        assert_eq!(seal.open(&key("ada", 1), &later), None);
        let name = seal.shared_name(&key("ada", 0xab));
        assert!(
            name.starts_with("ns:s:") && name.ends_with("abab"),
            "{name}"
        );
        assert_eq!(name.len(), 5 + 64);
        // Releases before had a kind here: what they stored stays readable.
        assert_eq!(record_name(&key("ada", 1))[16], b's');
    }
}
