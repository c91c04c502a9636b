//! A failed attempt: its failure, and the proof, if any, that the call did not run.

use std::time::Duration;

use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;

use crate::retry_backoff::LastAttemptFailure;
use crate::upstream_label::UpstreamLabel;

/// The way of an attempt to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The server was reached, or may have been.
    Reached,
    /// The server was not reached: the breaker counts these.
    NotReached,
    /// The server was not asked, for want of a token or a descriptor for example: neither a failure
    /// nor a sign of life. The call would fail at another instance, too.
    NotAttempted,
    /// The server was not asked because its last attempt failed a short while ago. Another instance
    /// may get the call.
    TooEarly,
}

/// The failure of an attempt without a reply.
#[derive(Debug)]
pub struct FailedAttempt {
    /// The failure for the client, if the call is not tried again.
    pub failure: Failure,
    /// The proof that the call may be tried again, if it may.
    pub proof: Option<ResendProof>,
    /// The way to the server.
    pub reach: Reach,
    /// True if the server may have been replaced: its era is to be probed again.
    pub era_in_doubt: bool,
    /// True if the server answered that there is no MCP endpoint of the requested kind at the URL
    /// (400, 404 or 405, or a stream of HTTP+SSE), or refused to open a session: for a probe, a sign
    /// of the other era.
    pub no_endpoint: bool,
    /// True if the server refuses the credentials of the request (401 or 403).
    pub credentials_refused: bool,
    /// True if the call did not run because this server could not be reached, or opened no session.
    did_not_run: bool,
}

impl FailedAttempt {
    /// Makes a failure that the server answered.
    pub fn new(failure: Failure) -> Self {
        Self {
            failure,
            proof: None,
            reach: Reach::Reached,
            era_in_doubt: false,
            no_endpoint: false,
            credentials_refused: false,
            did_not_run: false,
        }
    }

    /// Makes the failure of an attempt whose task ended with the upstream.
    pub fn removed(label: &UpstreamLabel) -> Self {
        let text = "The upstream is not served any more";
        Self::new(label.fail(FailureKind::Unavailable, text)).mark_not_attempted()
    }

    /// Adds the proof that the call may be tried again.
    pub fn with_proof(mut self, proof: Option<ResendProof>) -> Self {
        self.proof = proof;
        self
    }

    /// Marks that the server was not reached.
    pub fn mark_not_reached(mut self) -> Self {
        self.reach = Reach::NotReached;
        self.era_in_doubt = true;
        self
    }

    /// Marks that the server was not asked. The call would fail at another instance, too.
    pub fn mark_not_attempted(mut self) -> Self {
        self.reach = Reach::NotAttempted;
        self
    }

    /// Marks that the server refuses the credentials of the request.
    pub fn mark_credentials_refused(mut self) -> Self {
        self.credentials_refused = true;
        self
    }

    /// Marks that the server may have been replaced.
    pub fn mark_era_in_doubt(mut self) -> Self {
        self.era_in_doubt = true;
        self
    }

    /// Marks that the server answered, but not as such an endpoint.
    pub fn mark_no_endpoint(mut self) -> Self {
        self.no_endpoint = true;
        self
    }

    /// Marks that the call did not run.
    pub fn mark_did_not_run(mut self) -> Self {
        self.did_not_run = true;
        self
    }

    /// Takes back every sign about the era: the server is known to be the same as before.
    pub fn without_era_signs(mut self) -> Self {
        self.era_in_doubt = false;
        self.no_endpoint = false;
        self
    }

    /// True if the server was asked.
    pub fn was_attempted(&self) -> bool {
        match self.reach {
            Reach::Reached | Reach::NotReached => true,
            Reach::NotAttempted | Reach::TooEarly => false,
        }
    }

    /// True if the call did not run for a reason that lies with this server: another instance may
    /// get it.
    pub fn may_run_elsewhere(&self) -> bool {
        match self.reach {
            Reach::Reached | Reach::NotReached => self.did_not_run,
            Reach::NotAttempted => false,
            Reach::TooEarly => true,
        }
    }

    /// True if the server, its session or the connection to it is gone. Other failures may be due
    /// to the one request.
    pub fn is_server_lost(&self) -> bool {
        self.proof.is_some() || self.may_run_elsewhere() || self.failure.is_connection_lost()
    }

    /// True if the server answered that it opens no session.
    pub fn refuses_sessions(&self) -> bool {
        self.no_endpoint && self.era_in_doubt
    }

    /// True if the failure is no sign of the server's state: the server was not asked, for want of a
    /// token for example, or it refuses the credentials of one caller.
    pub fn concerns_caller_alone(&self, has_own_credentials: bool) -> bool {
        !self.was_attempted() || (has_own_credentials && self.credentials_refused)
    }

    /// Makes the failure of an attempt that is not made before `wait` has passed. Clients get the
    /// message of the last failure, or `usual` if it was not kept; operators get its cause.
    pub fn too_early(
        label: &UpstreamLabel,
        last: Option<LastAttemptFailure>,
        usual: &'static str,
        wait: Duration,
    ) -> Self {
        let failure = match last {
            Some(LastAttemptFailure { message, cause }) => label
                .fail(FailureKind::Unavailable, message)
                .with_cause(cause),
            None => label.fail(FailureKind::Unavailable, usual),
        };
        Self {
            reach: Reach::TooEarly,
            ..Self::new(failure.retry_after(wait))
        }
    }
}

impl From<Failure> for FailedAttempt {
    fn from(failure: Failure) -> Self {
        Self::new(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_that_was_not_attempted_goes_to_no_other_instance() {
        let attempt = || FailedAttempt::new(Failure::internal("x"));
        for marked in [
            attempt().mark_not_attempted().mark_did_not_run(),
            attempt().mark_did_not_run().mark_not_attempted(),
        ] {
            assert!(!marked.was_attempted() && !marked.may_run_elsewhere());
        }
        let lost = attempt().mark_not_reached().mark_did_not_run();
        assert!(lost.was_attempted() && lost.may_run_elsewhere());
    }
}
