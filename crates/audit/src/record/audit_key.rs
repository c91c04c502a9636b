//! The key of a chain that only its holder can continue.

use std::fmt;

use sha2::{Digest as _, Sha256};

const BLOCK: usize = 64;

/// A secret of 32 bytes, and its number in records.
#[derive(Clone, PartialEq, Eq)]
pub struct AuditKey {
    id: u8,
    secret: [u8; 32],
}

impl AuditKey {
    /// Takes a key.
    #[must_use]
    pub fn new(id: u8, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// Its number in records.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// HMAC-SHA256 (RFC 2104) of the parts, one after the other.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut pads = [[0x36; BLOCK], [0x5c; BLOCK]];
        for pad in &mut pads {
            for (byte, secret) in pad.iter_mut().zip(self.secret) {
                *byte ^= secret;
            }
        }
        let mut inner = Sha256::new_with_prefix(pads[0]);
        for part in parts {
            inner.update(part);
        }
        Sha256::new_with_prefix(pads[1])
            .chain_update(inner.finalize())
            .finalize()
            .into()
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuditKey({}, <secret>)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves F18.
    #[test]
    fn signatures_are_hmac_sha256() {
        // RFC 4231 has no key of 32 bytes; zeros after a shorter key do not change it. This is its
        // case 2, "Jefe".
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(b"Jefe");
        let signed = AuditKey::new(1, secret).sign(&[b"what do ya want ", b"for nothing?"]);
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(data_encoding::HEXLOWER.encode(&signed), expected);
        assert_eq!(
            format!("{:?}", AuditKey::new(1, secret)),
            "AuditKey(1, <secret>)",
            "f15"
        );
    }
}
