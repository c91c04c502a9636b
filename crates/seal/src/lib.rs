//! Sealing: texts that a client has to bring back (cursors, states) are encrypted and
//! authenticated, bound to a purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};

use weir_core::port::Random;

const NONCE: usize = 24;
/// A sealed text longer than this is refused before it is decoded.
const MAX_SEALED_LENGTH: usize = 512 << 10;
/// The label that sets the fingerprint of a key apart from its other uses.
const FINGERPRINT_LABEL: &[u8] = b"weir sealing key, fingerprint, version 1\0";

/// The public name of a sealing key. Keys with one id and different secrets differ in the
/// fingerprint, which reveals nothing of the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SealingKeyName {
    /// The id in sealed texts.
    pub id: u8,
    /// The first bytes of a digest of the key.
    pub fingerprint: [u8; 8],
}

/// A sealing key: an id that names it in sealed texts, and 32 secret bytes.
pub struct SealerKey {
    name: SealingKeyName,
    cipher: XChaCha20Poly1305,
    /// True once a text was sealed with it.
    has_sealed: AtomicBool,
}

impl SealerKey {
    /// Makes a key of 32 secret bytes. The id is a configured number, or 0 for a generated key.
    #[must_use]
    pub fn new(id: u8, secret: &[u8; 32]) -> Self {
        let digest = Sha256::new()
            .chain_update(FINGERPRINT_LABEL)
            .chain_update([id])
            .chain_update(secret)
            .finalize();
        let mut fingerprint = [0; 8];
        fingerprint.copy_from_slice(&digest[..8]);
        Self {
            name: SealingKeyName { id, fingerprint },
            cipher: XChaCha20Poly1305::new(secret.into()),
            has_sealed: AtomicBool::new(false),
        }
    }

    /// The public name of the key.
    #[must_use]
    pub fn name(&self) -> SealingKeyName {
        self.name
    }
}

impl std::fmt::Debug for SealerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealerKey({}, <secret>)", self.name.id)
    }
}

/// The keys: one of them seals, all open. Clones share the keys, so a replacement is in force
/// everywhere at once.
#[derive(Clone, Debug)]
pub struct Sealer {
    ring: Arc<ArcSwap<KeyRing>>,
}

/// The keys in force, newest first.
#[derive(Clone, Debug)]
struct KeyRing {
    keys: Vec<RingKey>,
    /// The index of the key that seals.
    sealing: usize,
}

#[derive(Clone, Debug)]
struct RingKey {
    key: Arc<SealerKey>,
    /// The monotonic time at which it stopped sealing, if it has sealed.
    sealed_until: Option<Duration>,
}

/// The sealed text does not open: it was changed, is foreign, or its key is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sealed text does not open")]
pub struct SealError;

impl Sealer {
    /// Takes the keys, newest first. The first one seals.
    ///
    /// # Panics
    ///
    /// If there is no key: the config's checks prevent that.
    #[must_use]
    pub fn new(keys: Vec<SealerKey>) -> Self {
        assert!(!keys.is_empty(), "a sealer needs a key");
        let ring = KeyRing {
            keys: keys.into_iter().map(RingKey::new).collect(),
            sealing: 0,
        };
        Self {
            ring: Arc::new(ArcSwap::from_pointee(ring)),
        }
    }

    /// A sealer with one fresh random key: its texts open in this process only.
    #[must_use]
    pub fn ephemeral(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        Self::new(vec![SealerKey::new(0, &secret)])
    }

    /// The names of the keys, newest first.
    #[must_use]
    pub fn key_names(&self) -> Vec<SealingKeyName> {
        let ring = self.ring.load();
        ring.keys.iter().map(|one| one.key.name).collect()
    }

    /// The name of the key that seals.
    #[must_use]
    pub fn sealing_key(&self) -> SealingKeyName {
        let ring = self.ring.load();
        ring.keys[ring.sealing].key.name
    }

    /// Replaces the keys, newest first. The key that seals goes on to seal if it is among them,
    /// else the first one does. No keys change nothing: the config's checks prevent that.
    pub fn replace(&self, keys: Vec<SealerKey>) {
        if keys.is_empty() {
            return;
        }
        let before = self.ring.load_full();
        let known = |key: SealerKey| {
            let mut same = before.keys.iter();
            let same = same.find(|one| one.key.name == key.name);
            same.cloned().unwrap_or_else(|| RingKey::new(key))
        };
        let keys: Vec<_> = keys.into_iter().map(known).collect();
        let sealing = before.keys[before.sealing].key.name;
        let sealing = keys.iter().position(|one| one.key.name == sealing);
        self.ring.store(Arc::new(KeyRing {
            keys,
            sealing: sealing.unwrap_or_default(),
        }));
    }

    /// Lets another key seal from `now` on, the monotonic time. A key that is not among the keys
    /// changes nothing. Calls of this and of [`Self::replace`] must not overlap.
    pub fn seal_with(&self, name: SealingKeyName, now: Duration) {
        let mut ring = KeyRing::clone(&self.ring.load());
        let Some(next) = ring.keys.iter().position(|one| one.key.name == name) else {
            return;
        };
        if next == ring.sealing {
            return;
        }
        let before = &mut ring.keys[ring.sealing];
        if before.key.has_sealed.load(Ordering::Relaxed) {
            before.sealed_until = Some(now);
        }
        ring.sealing = next;
        self.ring.store(Arc::new(ring));
    }

    /// The monotonic time at which a key stopped sealing in this process. `None` if it has sealed
    /// no text here.
    #[must_use]
    pub fn sealed_until(&self, name: SealingKeyName) -> Option<Duration> {
        let ring = self.ring.load();
        let mut same = ring.keys.iter();
        same.find(|one| one.key.name == name)?.sealed_until
    }

    /// Seals `plain` for `purpose`: owner, endpoint and use, to be given again for opening.
    #[must_use]
    pub fn seal(&self, random: &dyn Random, purpose: &[u8], plain: &[u8]) -> String {
        let ring = self.ring.load();
        let key = &ring.keys[ring.sealing].key;
        // A store for each text would move the cache line between the processors.
        if !key.has_sealed.load(Ordering::Relaxed) {
            key.has_sealed.store(true, Ordering::Relaxed);
        }
        let mut nonce = [0; NONCE];
        random.fill(&mut nonce);
        let mut sealed = Vec::with_capacity(1 + NONCE + plain.len() + 16);
        sealed.push(key.name.id);
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
        let ring = self.ring.load();
        key_id_of(text).is_some_and(|id| ring.index_of(id).is_some())
    }

    /// Reports if a sealed text names a key that is older than the one that seals.
    #[must_use]
    pub fn has_older_key(&self, text: &str) -> bool {
        let ring = self.ring.load();
        let index = key_id_of(text).and_then(|id| ring.index_of(id));
        index.is_some_and(|index| index > ring.sealing)
    }

    /// Reports if this key is among the keys.
    #[must_use]
    pub fn has_key(&self, name: SealingKeyName) -> bool {
        let ring = self.ring.load();
        ring.keys.iter().any(|one| one.key.name == name)
    }

    /// Opens a text that [`Self::seal`] made for the same purpose.
    ///
    /// # Errors
    ///
    /// [`SealError`] for every reason.
    pub fn open(&self, purpose: &[u8], text: &str) -> Result<Vec<u8>, SealError> {
        self.open_naming_key(purpose, text).map(|(plain, _)| plain)
    }

    /// Opens like [`Self::open`], and names the key that opened the text: a caller that keeps the
    /// result may use it as long as it [has that key](Self::has_key).
    ///
    /// # Errors
    ///
    /// [`SealError`] for every reason.
    pub fn open_naming_key(
        &self,
        purpose: &[u8],
        text: &str,
    ) -> Result<(Vec<u8>, SealingKeyName), SealError> {
        if text.len() > MAX_SEALED_LENGTH {
            return Err(SealError);
        }
        let sealed = BASE64URL_NOPAD
            .decode(text.as_bytes())
            .map_err(|_| SealError)?;
        let (id, rest) = sealed.split_first().ok_or(SealError)?;
        let (nonce, body) = rest.split_at_checked(NONCE).ok_or(SealError)?;
        let nonce: [u8; NONCE] = nonce.try_into().map_err(|_| SealError)?;
        let ring = self.ring.load();
        ring.keys
            .iter()
            .filter(|one| one.key.name.id == *id)
            .find_map(|one| {
                let payload = Payload {
                    msg: body,
                    aad: purpose,
                };
                let plain = one.key.cipher.decrypt(&XNonce::from(nonce), payload);
                Some((plain.ok()?, one.key.name))
            })
            .ok_or(SealError)
    }
}

impl KeyRing {
    fn index_of(&self, id: u8) -> Option<usize> {
        self.keys.iter().position(|one| one.key.name.id == id)
    }
}

impl RingKey {
    fn new(key: SealerKey) -> Self {
        Self {
            key: Arc::new(key),
            sealed_until: None,
        }
    }
}

/// Returns the id of the key that a sealed text names.
fn key_id_of(text: &str) -> Option<u8> {
    // The id is the first byte: three quarters of the first group of four characters.
    let first = text.as_bytes().get(..4)?;
    let first = BASE64URL_NOPAD.decode(first).ok()?;
    first.first().copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
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

    #[test]
    fn clones_share_a_replacement_and_the_sealing_key() {
        let second = Duration::from_secs(1);
        let sealer = Sealer::new(vec![SealerKey::new(1, &[1; 32])]);
        let clone = sealer.clone();
        let old = clone.sealing_key();
        let text = sealer.seal(&AscendingRandom, b"who", b"what");
        let both = || vec![SealerKey::new(2, &[2; 32]), SealerKey::new(1, &[1; 32])];
        sealer.replace(both());
        assert_eq!(clone.sealing_key(), old);
        assert!(!clone.has_older_key(&text));
        let new = clone.key_names()[0];
        assert_eq!((new.id, clone.sealed_until(old)), (2, None));
        sealer.seal_with(new, second);
        assert_eq!(clone.sealing_key(), new);
        assert_eq!(clone.sealed_until(old), Some(second));
        assert!(clone.has_older_key(&text) && clone.open(b"who", &text).is_ok());
        let newer = clone.seal(&AscendingRandom, b"who", b"what");
        assert!(!clone.has_older_key(&newer));
        sealer.replace(both());
        assert_eq!(clone.sealed_until(old), Some(second));
        // A key that sealed no text has no time, and an unknown one changes nothing.
        let unused = Sealer::new(both());
        unused.seal_with(old, second);
        assert_eq!(
            (unused.sealing_key(), unused.sealed_until(new)),
            (old, None)
        );
        unused.seal_with(SealerKey::new(2, &[3; 32]).name(), second);
        assert_eq!(unused.sealing_key(), old);
        sealer.replace(vec![SealerKey::new(2, &[2; 32])]);
        assert_eq!(clone.open(b"who", &text), Err(SealError));
        assert!(clone.open(b"who", &newer).is_ok());
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
