//! An attempt that gave no reply: the failure, and whether it proves that nothing ran.

use weir_core::Failure;
use weir_era::hop::Proof;

/// Why an attempt gave no reply.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// What the client is told if it is not tried again.
    pub(crate) failure: Failure,
    /// Why it may be tried again, if it may.
    pub(crate) proof: Option<Proof>,
    /// True if the server was not reached: the breaker counts these.
    pub(crate) unreached: bool,
    /// True if nobody was asked at all: that is neither a failure of the server nor a sign of life.
    pub(crate) unasked: bool,
    /// True if what the server is may have changed: its era is to be found out again.
    pub(crate) doubtful: bool,
    /// True if there is no MCP endpoint of the asked kind at the URL (404 or 405): for a probe, a
    /// sign of the other era.
    pub(crate) answered: bool,
}

impl Refusal {
    /// A failure that stands: the server answered it.
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

    /// It may be tried again.
    pub(crate) fn proven(mut self, proof: Option<Proof>) -> Self {
        self.proof = proof;
        self
    }

    /// The server was not reached.
    pub(crate) fn unreached(mut self) -> Self {
        self.unreached = true;
        self.doubtful = true;
        self
    }

    /// Nobody was asked.
    pub(crate) fn unasked(mut self) -> Self {
        self.unasked = true;
        self
    }

    /// What the server is may have changed.
    pub(crate) fn doubtful(mut self) -> Self {
        self.doubtful = true;
        self
    }
}

impl Refusal {
    /// The server answered, only not to this.
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
