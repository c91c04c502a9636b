//! A failed attempt: its failure, and the proof, if any, that the call did not run.

use weir_core::Failure;
use weir_era::upstream_messages::ResendProof;

/// The failure of an attempt without a reply.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The failure for the client, if the call is not tried again.
    pub(crate) failure: Failure,
    /// The proof that the call may be tried again, if it may.
    pub(crate) proof: Option<ResendProof>,
    /// True if the server was not reached: the breaker counts these.
    pub(crate) unreached: bool,
    /// True if the server was not asked at all: neither a failure nor a sign of life.
    pub(crate) unasked: bool,
    /// True if the server may have been replaced: its era is to be probed again.
    pub(crate) doubtful: bool,
    /// True if the server answered that there is no MCP endpoint of the requested kind at the URL
    /// (400, 404 or 405), or refused to open a session: for a probe, a sign of the other era.
    pub(crate) answered: bool,
}

impl Refusal {
    /// Makes a failure that the server answered.
    pub(crate) fn new(failure: Failure) -> Self {
        Self {
            failure,
            proof: None,
            unreached: false,
            unasked: false,
            doubtful: false,
            answered: false,
        }
    }

    /// Adds the proof that the call may be tried again.
    pub(crate) fn proven(mut self, proof: Option<ResendProof>) -> Self {
        self.proof = proof;
        self
    }

    /// Marks that the server was not reached.
    pub(crate) fn unreached(mut self) -> Self {
        self.unreached = true;
        self.doubtful = true;
        self
    }

    /// Marks that the server was not asked.
    pub(crate) fn unasked(mut self) -> Self {
        self.unasked = true;
        self
    }

    /// Marks that the server may have been replaced.
    pub(crate) fn doubtful(mut self) -> Self {
        self.doubtful = true;
        self
    }
}

impl Refusal {
    /// Marks that the server answered, but not as such an endpoint.
    pub(crate) fn answered(mut self) -> Self {
        self.answered = true;
        self
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::new(failure)
    }
}
