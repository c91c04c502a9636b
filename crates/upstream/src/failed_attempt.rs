//! A failed attempt: its failure, and the proof, if any, that the call did not run.

use weir_core::Failure;
use weir_era::upstream_messages::ResendProof;

/// The failure of an attempt without a reply.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    /// The failure for the client, if the call is not tried again.
    pub(crate) failure: Failure,
    /// The proof that the call may be tried again, if it may.
    pub(crate) proof: Option<ResendProof>,
    /// True if the server was not reached: the breaker counts these.
    pub(crate) not_reached: bool,
    /// True if the server was not asked at all: neither a failure nor a sign of life.
    pub(crate) not_attempted: bool,
    /// True if the server may have been replaced: its era is to be probed again.
    pub(crate) era_in_doubt: bool,
    /// True if the server answered that there is no MCP endpoint of the requested kind at the URL
    /// (400, 404 or 405), or refused to open a session: for a probe, a sign of the other era.
    pub(crate) no_endpoint: bool,
}

impl FailedAttempt {
    /// Makes a failure that the server answered.
    pub(crate) fn new(failure: Failure) -> Self {
        Self {
            failure,
            proof: None,
            not_reached: false,
            not_attempted: false,
            era_in_doubt: false,
            no_endpoint: false,
        }
    }

    /// Adds the proof that the call may be tried again.
    pub(crate) fn with_proof(mut self, proof: Option<ResendProof>) -> Self {
        self.proof = proof;
        self
    }

    /// Marks that the server was not reached.
    pub(crate) fn mark_not_reached(mut self) -> Self {
        self.not_reached = true;
        self.era_in_doubt = true;
        self
    }

    /// Marks that the server was not asked.
    pub(crate) fn mark_not_attempted(mut self) -> Self {
        self.not_attempted = true;
        self
    }

    /// Marks that the server may have been replaced.
    pub(crate) fn mark_era_in_doubt(mut self) -> Self {
        self.era_in_doubt = true;
        self
    }
}

impl FailedAttempt {
    /// Marks that the server answered, but not as such an endpoint.
    pub(crate) fn mark_no_endpoint(mut self) -> Self {
        self.no_endpoint = true;
        self
    }
}

impl From<Failure> for FailedAttempt {
    fn from(failure: Failure) -> Self {
        Self::new(failure)
    }
}
