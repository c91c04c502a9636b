//! Sealing: texts that a client has to bring back (cursors, states) are encrypted and
//! authenticated, bound to a purpose.

use std::sync::Arc;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use data_encoding::BASE64URL_NOPAD;

use crate::port::environment::Random;

const NONCE: usize = 24;
/// A sealed text longer than this is refused before it is decoded.
const LONGEST: usize = 512 << 10;

/// A sealing key: an id that names it in sealed texts, and 32 secret bytes.
pub struct SealerKey {
    id: u8,
    cipher: XChaCha20Poly1305,
}

impl SealerKey {
    /// Makes a key of 32 secret bytes. The id is their public fingerprint's first byte or a
    /// configured number.
    #[must_use]
    pub fn new(id: u8, secret: &[u8; 32]) -> Self {
        Self {
            id,
            cipher: XChaCha20Poly1305::new(secret.into()),
        }
    }
}

impl std::fmt::Debug for SealerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({}, <secret>)", self.id)
    }
}

/// The keys: the first seals, all open.
#[derive(Clone, Debug)]
pub struct Sealer {
    keys: Arc<[SealerKey]>,
}

/// The sealed text does not open: it was changed, is foreign, or its key is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sealed text does not open")]
pub struct SealError;

impl Sealer {
    /// Takes the keys, newest first.
    ///
    /// # Panics
    ///
    /// If there is no key: the config's checks prevent that.
    #[must_use]
    pub fn new(keys: Vec<SealerKey>) -> Self {
        assert!(!keys.is_empty(), "a sealer needs a key");
        Self { keys: keys.into() }
    }

    /// A sealer with one fresh random key: its texts open in this process only.
    #[must_use]
    pub fn ephemeral(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        Self::new(vec![SealerKey::new(0, &secret)])
    }

    /// Seals `plain` for `purpose`: owner, endpoint and use, to be given again for opening.
    #[must_use]
    pub fn seal(&self, random: &dyn Random, purpose: &[u8], plain: &[u8]) -> String {
        let key = &self.keys[0];
        let mut nonce = [0; NONCE];
        random.fill(&mut nonce);
        let mut sealed = Vec::with_capacity(1 + NONCE + plain.len() + 16);
        sealed.push(key.id);
        sealed.extend_from_slice(&nonce);
        // Encryption of a buffer this small cannot fail; an empty body would not open: that is the
        // safe side.
        if let Ok(body) = key.cipher.encrypt(
            &XNonce::from(nonce),
            Payload {
                msg: plain,
                aad: purpose,
            },
        ) {
            sealed.extend_from_slice(&body);
        }
        BASE64URL_NOPAD.encode(&sealed)
    }

    /// Reports if a sealed text names a key that is known here. A text of another key may be one
    /// that a process with newer keys sealed.
    #[must_use]
    pub fn knows_key_of(&self, text: &str) -> bool {
        // The id is the first byte: three quarters of the first group of four characters.
        let first = text.as_bytes().get(..4);
        let first = first.and_then(|first| BASE64URL_NOPAD.decode(first).ok());
        let id = first.and_then(|first| first.first().copied());
        id.is_some_and(|id| self.keys.iter().any(|key| key.id == id))
    }

    /// Opens a text that [`Self::seal`] made for the same purpose.
    ///
    /// # Errors
    ///
    /// [`SealError`] for every reason.
    pub fn open(&self, purpose: &[u8], text: &str) -> Result<Vec<u8>, SealError> {
        if text.len() > LONGEST {
            return Err(SealError);
        }
        let sealed = BASE64URL_NOPAD
            .decode(text.as_bytes())
            .map_err(|_| SealError)?;
        let (id, rest) = sealed.split_first().ok_or(SealError)?;
        let (nonce, body) = rest.split_at_checked(NONCE).ok_or(SealError)?;
        let nonce: [u8; NONCE] = nonce.try_into().map_err(|_| SealError)?;
        self.keys
            .iter()
            .filter(|key| key.id == *id)
            .find_map(|key| {
                key.cipher
                    .decrypt(
                        &XNonce::from(nonce),
                        Payload {
                            msg: body,
                            aad: purpose,
                        },
                    )
                    .ok()
            })
            .ok_or(SealError)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    struct AscendingRandom;
    impl Random for AscendingRandom {
        fn fill(&self, buffer: &mut [u8]) {
            for (i, b) in buffer.iter_mut().enumerate() {
                *b = i as u8;
            }
        }
    }

    #[test]
    fn opens_for_the_same_purpose_with_any_kept_key() {
        let old = Sealer::new(vec![SealerKey::new(1, &[1; 32])]);
        let text = old.seal(&AscendingRandom, b"who", b"what");
        let new = Sealer::new(vec![
            SealerKey::new(2, &[2; 32]),
            SealerKey::new(1, &[1; 32]),
        ]);
        assert_eq!(new.open(b"who", &text).unwrap(), b"what");
        assert_eq!(new.open(b"else", &text), Err(SealError));
        assert!(new.knows_key_of(&text) && old.knows_key_of(&text));
        assert!(!old.knows_key_of(&new.seal(&AscendingRandom, b"who", b"what")));
        assert!(!old.knows_key_of("") && !old.knows_key_of("\u{e4}\u{e4}\u{e4}"));
        assert_eq!(
            Sealer::new(vec![SealerKey::new(1, &[3; 32])]).open(b"who", &text),
            Err(SealError)
        );
        assert_eq!(old.open(b"who", ""), Err(SealError));
        assert_eq!(old.open(b"who", &"A".repeat(600_000)), Err(SealError));
    }

    proptest! {
        // Proves B16.
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_changed_byte_is_refused(plain in prop::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let sealer = Sealer::ephemeral(&AscendingRandom);
            let text = sealer.seal(&AscendingRandom, b"p", &plain);
            prop_assert_eq!(sealer.open(b"p", &text), Ok(plain));
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(changed) = String::from_utf8(bytes) {
                prop_assert_eq!(sealer.open(b"p", &changed), Err(SealError));
            }
        }
    }
}
