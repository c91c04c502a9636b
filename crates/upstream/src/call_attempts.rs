//! Attempts at calls of one server: its transport behind the circuit breaker, and the record of
//! their outcomes.

use std::sync::Arc;

use weir_core::reply::Reply;
use weir_core::upstream::OutboundCall;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::breaker::Breaker;
use crate::call_time_limits::TimeoutHandler;
use crate::server_transport::ServerTransport;

/// The transport and the circuit breaker of one server. Every running call has a share of it: the
/// last one to end ends the server's tasks.
#[derive(Debug)]
pub(crate) struct CallAttempts {
    pub(crate) site: Arc<UpstreamContext>,
    pub(crate) transport: ServerTransport,
    pub(crate) breaker: Breaker,
}

impl CallAttempts {
    pub(crate) fn new(site: Arc<UpstreamContext>, transport: ServerTransport) -> Self {
        Self {
            site,
            transport,
            breaker: Breaker::default(),
        }
    }

    /// Makes one attempt. While the breaker is open, one call a second reaches the server. `again`
    /// is the proof of the attempt before.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
    ) -> Result<Reply, FailedAttempt> {
        self.breaker
            .admit(|| self.site.clock.now())
            .map_err(|wait| {
                let text = "The upstream has not been reachable for a while: try again later";
                let failure = self.site.label.fail(FailureKind::Unavailable, text);
                FailedAttempt::new(failure.retry_after(wait)).mark_not_attempted()
            })?;
        let spoken = self.transport.call(outbound, again).await;
        self.record(spoken.as_ref().err());
        spoken
    }

    /// Records the outcome of an attempt.
    pub(crate) fn record(&self, refusal: Option<&FailedAttempt>) {
        match refusal {
            None => self.breaker.record_success(),
            Some(refusal) => {
                if refusal.era_in_doubt {
                    self.transport.doubt_era();
                }
                self.site.record.note_error(&refusal.failure);
                match (refusal.not_reached, refusal.not_attempted) {
                    (true, _) => self.breaker.record_failure(self.site.clock.now()),
                    (false, true) => {}
                    (false, false) => self.breaker.record_success(),
                }
            }
        }
    }
}

impl TimeoutHandler for CallAttempts {
    fn timed_out(&self, whole: bool) -> Failure {
        let text = if whole {
            "The call took longer than it may: it was cancelled"
        } else {
            "The upstream showed no life for longer than it may: the call was cancelled"
        };
        let failure = self.site.label.fail(FailureKind::TimedOut, text);
        self.record(Some(
            &FailedAttempt::new(self.site.label.fail(FailureKind::TimedOut, text))
                .mark_not_reached(),
        ));
        failure
    }
}

impl Drop for CallAttempts {
    fn drop(&mut self) {
        self.site.tasks.abort();
    }
}
