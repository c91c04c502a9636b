//! The seal of values in the shared store, and the beginning of their keys.

use std::fmt::Arguments;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::port::Random;
use weir_seal::Sealer;

/// Seals the values of one namespace.
#[derive(Clone)]
pub(crate) struct StoreSeal {
    namespace: String,
    sealer: Sealer,
    random: Arc<dyn Random>,
}

impl StoreSeal {
    /// Names and seals within a namespace.
    pub(crate) fn new(namespace: String, sealer: Sealer, random: Arc<dyn Random>) -> Self {
        Self {
            namespace,
            sealer,
            random,
        }
    }

    /// The name of a key in the shared store: `rest` behind the namespace.
    pub(crate) fn name(&self, rest: Arguments<'_>) -> String {
        format!("{}:{rest}", self.namespace)
    }

    /// Seals a value, so that it opens for this purpose alone.
    pub(crate) fn seal(&self, purpose: &[u8], plain: &[u8]) -> String {
        self.sealer.seal(&*self.random, purpose, plain)
    }

    /// Opens a sealed value; `None` if it was changed, or sealed for another purpose.
    pub(crate) fn open(&self, purpose: &[u8], text: &str) -> Option<Bytes> {
        self.sealer.open(purpose, text).ok().map(Bytes::from)
    }
}
