//! The fields of the hash of operators' changes: their names, and their sealed values.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use weir_core::instant::millis;
use weir_core::port::{ChangeTarget, ChangeVersion, Random, SharedChange};
use weir_seal::{Sealer, SealingKeyName};

/// The layout of values: the first byte of the sealed bytes.
const LAYOUT: u8 = 1;
/// The bytes of a sealed value before its body: layout, version, end, and the mark of a removal.
const HEAD: usize = 1 + 16 + 8 + 1;
/// The characters of a value before its sealed text: the version, and the end of the entry. They
/// are there for the script that writes, and are worth nothing to readers.
const PLAIN_HEAD: usize = 32 + 16;
/// The time for which the removal of a change is kept: a replica that was cut off from the store for
/// longer may bring the change back.
const REMOVAL_TTL: Duration = Duration::from_secs(24 * 3600);
/// The end of a change without an end.
const NEVER: u64 = u64::MAX;

/// Seals operators' changes for the shared store.
pub(crate) struct ChangeSeal {
    sealer: Sealer,
    random: Arc<dyn Random>,
}

/// A value that gives no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusableValue {
    /// It was damaged, or no replica has sealed it. It may be replaced.
    Corrupted,
    /// A replica with another key or of another version may have sealed it. It is left alone.
    Foreign,
}

impl ChangeSeal {
    pub(crate) fn new(sealer: Sealer, random: Arc<dyn Random>) -> Self {
        Self { sealer, random }
    }

    /// Returns the value of a field: version and end in plain text, then everything sealed, so that
    /// it opens for this target alone.
    pub(crate) fn seal(&self, target: &ChangeTarget, change: &SharedChange) -> String {
        let mut plain = Vec::with_capacity(HEAD + change.body.len());
        plain.push(LAYOUT);
        plain.extend_from_slice(&version_bytes(&change.version));
        plain.extend_from_slice(&change.ends.unwrap_or(NEVER).to_be_bytes());
        plain.push(u8::from(change.is_removal));
        plain.extend_from_slice(&change.body);
        let sealed = self.sealer.seal(&*self.random, &purpose(target), &plain);
        let version = HEXLOWER.encode(&version_bytes(&change.version));
        format!("{version}{}{sealed}", millis_text(entry_end(change)))
    }

    /// The name of the key that seals.
    pub(crate) fn sealing_key(&self) -> SealingKeyName {
        self.sealer.sealing_key()
    }

    /// Reports if a value is sealed with an older key than the one that seals now.
    pub(crate) fn has_older_key(&self, value: &str) -> bool {
        let sealed = value.get(PLAIN_HEAD..);
        sealed.is_some_and(|sealed| self.sealer.has_older_key(sealed))
    }

    /// Opens the value of a field.
    pub(crate) fn open(
        &self,
        target: &ChangeTarget,
        value: &str,
    ) -> Result<SharedChange, UnusableValue> {
        let (head, sealed) = value
            .split_at_checked(PLAIN_HEAD)
            .ok_or(UnusableValue::Corrupted)?;
        let plain = self.sealer.open(&purpose(target), sealed).map_err(|_| {
            if self.sealer.knows_key_of(sealed) {
                UnusableValue::Corrupted
            } else {
                UnusableValue::Foreign
            }
        })?;
        if plain.first() != Some(&LAYOUT) {
            return Err(UnusableValue::Foreign);
        }
        let plain = Bytes::from(plain);
        let change = read(&plain).ok_or(UnusableValue::Corrupted)?;
        // A changed head would keep newer changes from being written.
        let version = HEXLOWER.encode(&version_bytes(&change.version));
        let expected = format!("{version}{}", millis_text(entry_end(&change)));
        if head != expected {
            return Err(UnusableValue::Corrupted);
        }
        Ok(change)
    }
}

fn read(plain: &Bytes) -> Option<SharedChange> {
    let (at, rest) = plain.get(1..)?.split_first_chunk::<8>()?;
    let (replica, rest) = rest.split_first_chunk::<8>()?;
    let (ends, rest) = rest.split_first_chunk::<8>()?;
    let ends = u64::from_be_bytes(*ends);
    Some(SharedChange {
        version: ChangeVersion {
            at: u64::from_be_bytes(*at),
            replica: *replica,
        },
        is_removal: *rest.first()? == 1,
        ends: (ends != NEVER).then_some(ends),
        body: plain.slice(HEAD..),
    })
}

/// Returns the time at which an entry falls away, in milliseconds of the Unix epoch.
pub(crate) fn entry_end(change: &SharedChange) -> u64 {
    if change.is_removal {
        let kept = millis(REMOVAL_TTL);
        change.version.at.saturating_add(kept)
    } else {
        change.ends.unwrap_or(NEVER)
    }
}

/// Returns a time in a form that is ordered as text.
pub(crate) fn millis_text(millis: u64) -> String {
    format!("{millis:016x}")
}

/// Returns the name of a target's field.
pub(crate) fn field_name(target: &ChangeTarget) -> String {
    HEXLOWER.encode(&target.0)
}

/// Reads the name of a field; `None` for a field that is no change.
pub(crate) fn target_of(field: &str) -> Option<ChangeTarget> {
    let bytes = HEXLOWER_PERMISSIVE.decode(field.as_bytes()).ok()?;
    bytes.try_into().ok().map(ChangeTarget)
}

fn version_bytes(version: &ChangeVersion) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&version.at.to_be_bytes());
    bytes[8..].copy_from_slice(&version.replica);
    bytes
}

fn purpose(target: &ChangeTarget) -> Vec<u8> {
    [b"weir operator change ".as_slice(), &target.0].concat()
}

#[cfg(test)]
mod tests {
    use weir_seal::SealerKey;
    use weir_testkit::FakeRandom;

    use super::*;

    fn seal(key: u8) -> ChangeSeal {
        let sealer = Sealer::new(vec![SealerKey::new(key, &[key; 32])]);
        ChangeSeal::new(sealer, Arc::new(FakeRandom::new(1)))
    }

    #[test]
    fn value_opens_for_its_target_and_with_its_head_alone() {
        let (one, other) = (ChangeTarget([1; 32]), ChangeTarget([2; 32]));
        let change = SharedChange {
            version: ChangeVersion {
                at: 5,
                replica: [9; 8],
            },
            is_removal: false,
            ends: Some(77),
            body: "body".into(),
        };
        let text = seal(1).seal(&one, &change);
        assert_eq!(seal(1).open(&one, &text), Ok(change.clone()));
        let corrupted = Err(UnusableValue::Corrupted);
        assert_eq!(seal(1).open(&other, &text), corrupted);
        assert_eq!(seal(1).open(&one, &text.replacen('0', "f", 1)), corrupted);
        assert_eq!(seal(1).open(&one, "garbage"), corrupted);
        assert_eq!(seal(2).open(&one, &text), Err(UnusableValue::Foreign));
        let removal = SharedChange {
            is_removal: true,
            ends: None,
            ..change
        };
        let text = seal(1).seal(&one, &removal);
        assert_eq!(seal(1).open(&one, &text), Ok(removal));
    }
}
