//! Attempts at calls of one server: its transport behind the circuit breaker, and the record of
//! their outcomes.

use std::sync::Arc;

use weir_core::call_limits::TimeoutHandler;
use weir_core::reply::Reply;
use weir_core::upstream::OutboundCall;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::breaker::Breaker;
use crate::instances::instance_name::InstanceName;
use crate::instances::{InstanceRoute, ServerInstances};
use crate::server_transport::ServerTransport;

/// The transport and the circuit breaker of one server. Every running call has a share of it: the
/// last one to end ends the server's tasks.
#[derive(Debug)]
pub(crate) struct CallAttempts {
    pub(crate) site: Arc<UpstreamContext>,
    pub(crate) server: CalledServer,
}

/// The server of an upstream.
#[derive(Debug)]
pub(crate) enum CalledServer {
    /// A server behind one URL, or a child process.
    One(SingleServer),
    /// A server with several URLs.
    Several(ServerInstances),
}

/// A server behind one URL, or a child process.
#[derive(Debug)]
pub(crate) struct SingleServer {
    pub(crate) transport: ServerTransport,
    pub(crate) breaker: Breaker,
    /// The name of the URL: an upstream may have had several URLs when a task began.
    pub(crate) name: Option<InstanceName>,
}

impl SingleServer {
    /// Makes a server that was not called yet. `name` is that of its URL, if it has one.
    pub(crate) fn new(transport: ServerTransport, name: Option<InstanceName>) -> Self {
        Self {
            transport,
            breaker: Breaker::default(),
            name,
        }
    }

    /// Records the outcome of opening a watch. In a running process that asks it nothing, so that
    /// it is no sign of life of a silent one.
    pub(crate) fn record_opened(&self, site: &UpstreamContext, refusal: Option<&FailedAttempt>) {
        if refusal.is_some() || !self.transport.has_silent_process() {
            self.record(site, refusal);
        }
    }

    /// Records the outcome of an attempt.
    pub(crate) fn record(&self, site: &UpstreamContext, refusal: Option<&FailedAttempt>) {
        match refusal {
            None => self.breaker.record_success(),
            Some(refusal) => {
                if refusal.era_in_doubt {
                    self.transport.doubt_era();
                }
                site.record.note_error(&refusal.failure);
                match (refusal.not_reached, refusal.not_attempted) {
                    (true, _) => {
                        self.breaker.record_failure(site.clock.now());
                        if self.breaker.is_open() {
                            self.transport.check_processes();
                        }
                    }
                    (false, true) => {}
                    (false, false) => self.breaker.record_success(),
                }
            }
        }
    }
}

impl CallAttempts {
    pub(crate) fn new(site: Arc<UpstreamContext>, server: CalledServer) -> Self {
        Self { site, server }
    }

    /// Makes one attempt. While the breaker is open, one call a second reaches the server. `again`
    /// is the proof of the attempt before, `route` the way of the call over several URLs. There, an
    /// attempt that certainly did not run goes on to another URL.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
        route: Option<&InstanceRoute>,
    ) -> Result<Reply, FailedAttempt> {
        let one = match (&self.server, route) {
            (CalledServer::One(one), _) => one,
            // Boxed: the future of a call to one URL is no larger for it.
            (CalledServer::Several(all), Some(route)) => {
                return Box::pin(all.call(outbound, again, route)).await;
            }
            (CalledServer::Several(_), None) => {
                return Err(Failure::internal("a call has no route over its URLs").into());
            }
        };
        one.breaker
            .admit(|| self.site.clock.now())
            .map_err(|wait| {
                let text = "The upstream has not been reachable for a while: try again later";
                let failure = self.site.label.fail(FailureKind::Unavailable, text);
                FailedAttempt::new(failure.retry_after(wait)).mark_not_attempted()
            })?;
        let spoken = one.transport.call(outbound, again).await;
        one.record(&self.site, spoken.as_ref().err());
        spoken
    }
}

/// The server of one call, as its time limits need it.
pub(crate) struct TimedServer {
    pub(crate) attempts: Arc<CallAttempts>,
    /// The way of the call over several URLs.
    pub(crate) route: Option<Arc<InstanceRoute>>,
}

impl TimeoutHandler for TimedServer {
    fn timed_out(&self, whole: bool) -> Failure {
        let text = if whole {
            "The call took longer than it may: it was cancelled"
        } else {
            "The upstream showed no life for longer than it may: the call was cancelled"
        };
        let site = &self.attempts.site;
        let failure = site.label.fail(FailureKind::TimedOut, text);
        let recorded = FailedAttempt::new(site.label.fail(FailureKind::TimedOut, text));
        let recorded = recorded.mark_silent();
        match &self.attempts.server {
            CalledServer::One(one) => one.record(site, Some(&recorded)),
            CalledServer::Several(all) => {
                let route = self.route.as_deref();
                if let Some(instance) = route.and_then(|route| all.of_route(route)) {
                    instance.record_refusal(&recorded);
                }
            }
        }
        failure
    }
}

impl Drop for CallAttempts {
    fn drop(&mut self) {
        self.site.tasks.abort();
    }
}
