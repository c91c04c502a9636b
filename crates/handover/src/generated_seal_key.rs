//! The sealing key of a weir whose config has none.

use data_encoding::BASE64URL_NOPAD;
use weir_core::port::Random;
use weir_seal::{Sealer, SealerKey};

/// The generated sealing key of a weir without `keys` in its config. Sealed values open in this
/// process and its successors.
#[derive(Clone)]
pub struct GeneratedSealKey([u8; 32]);

impl GeneratedSealKey {
    /// Makes a key.
    pub fn fresh(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        Self(secret)
    }

    /// Returns the sealer with this key alone.
    #[must_use]
    pub fn sealer(&self) -> Sealer {
        Sealer::new(vec![SealerKey::new(0, &self.0)])
    }

    /// Returns the key for the successor.
    pub(super) fn text(&self) -> String {
        BASE64URL_NOPAD.encode(&self.0)
    }

    /// Reads the key of the previous process.
    pub(super) fn read(text: &str) -> Option<Self> {
        BASE64URL_NOPAD
            .decode(text.as_bytes())
            .ok()?
            .try_into()
            .ok()
            .map(Self)
    }
}

impl std::fmt::Debug for GeneratedSealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GeneratedSealKey(<secret>)")
    }
}
