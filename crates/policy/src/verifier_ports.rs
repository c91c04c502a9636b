//! The ports that the verifier depends on.

use std::sync::Arc;

use weir_core::port::{Clock, DocumentFetcher, Random};

/// The ports that the verifier depends on.
#[derive(Clone)]
pub struct VerifierPorts {
    /// For keys and metadata of issuers.
    pub fetch: Arc<dyn DocumentFetcher>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For jitter.
    pub random: Arc<dyn Random>,
}

impl std::fmt::Debug for VerifierPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifierPorts").finish_non_exhaustive()
    }
}
