//! The ports that the verifier depends on.

use std::sync::Arc;

use weir_core::port::{Clock, DocumentFetcher, Random};

/// The ports that the verifier depends on.
#[derive(Clone, Debug)]
pub struct VerifierPorts {
    /// For keys and metadata of issuers.
    pub fetch: Arc<dyn DocumentFetcher>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For jitter.
    pub random: Arc<dyn Random>,
}
