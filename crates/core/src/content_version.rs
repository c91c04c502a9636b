//! Digests of content.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A digest of content: the same on every replica that shows the same content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ContentVersion(pub [u8; 16]);

impl fmt::Debug for ContentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl ContentVersion {
    /// The digest of parts, each with its length, so that moving a byte from one to the next
    /// changes it.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let full: [u8; 32] = hash.finalize().into();
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Self(short)
    }
}
