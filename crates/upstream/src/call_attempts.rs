//! Attempts at calls of one server: its transport behind the circuit breaker, and the record of
//! their outcomes.

use std::sync::Arc;
use std::time::Duration;

use weir_core::call_limits::{PassedLimit, TimeoutHandler};
use weir_core::reply::Reply;
use weir_core::upstream::OutboundCall;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::instances::{InstanceRoute, ServerInstance, ServerInstances};
use crate::single_server::SingleServer;

/// The transport and the circuit breaker of one server. Every running call has a share of it: the
/// last one to end ends the server's tasks.
#[derive(Debug)]
pub(crate) struct CallAttempts {
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) server: CalledServer,
}

/// The server of an upstream.
#[derive(Debug)]
pub(crate) enum CalledServer {
    /// A server behind one URL, or a child process.
    One(Arc<SingleServer>),
    /// A server with several URLs.
    Several(ServerInstances),
}

impl CallAttempts {
    pub(crate) fn new(context: Arc<UpstreamContext>, server: CalledServer) -> Self {
        Self { context, server }
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
            .admit(|| self.context.clock.now())
            .map_err(|wait| {
                let text = "The upstream has not been reachable for a while: try again later";
                let failure = self.context.label.fail(FailureKind::Unavailable, text);
                FailedAttempt::new(failure.retry_after(wait)).mark_not_attempted()
            })?;
        let start = one.breaker.begin();
        let spoken = one.transport.call(outbound, again).await;
        one.record(&self.context, start, spoken.as_ref().err());
        spoken
    }
}

/// The server of one call, as its time limits need it.
pub(crate) struct TimedServer {
    pub(crate) attempts: Arc<CallAttempts>,
    /// The way of the call over several URLs.
    pub(crate) route: Option<Arc<InstanceRoute>>,
    /// The silence of the server that counts as its failure.
    pub(crate) silence_limit: Duration,
}

impl TimedServer {
    fn instance(&self) -> Option<&Arc<ServerInstance>> {
        match &self.attempts.server {
            CalledServer::One(_) => None,
            CalledServer::Several(all) => all.of_route(self.route.as_deref()?),
        }
    }
}

impl TimeoutHandler for TimedServer {
    fn record_life(&self) {
        match (&self.attempts.server, self.instance()) {
            (CalledServer::One(one), _) => one.record_life(&self.attempts.context),
            (CalledServer::Several(_), Some(instance)) => instance.record_life(),
            (CalledServer::Several(_), None) => {}
        }
    }

    fn timed_out(&self, passed: PassedLimit) -> Failure {
        let text = if passed.is_hard {
            "The call took longer than it may: it was cancelled"
        } else {
            "The upstream showed no life for longer than it may: the call was cancelled"
        };
        let context = &self.attempts.context;
        let failure = context.label.fail(FailureKind::TimedOut, text);
        let (silence, limit) = (passed.silence, self.silence_limit);
        match (&self.attempts.server, self.instance()) {
            (CalledServer::One(one), _) => one.record_silence(context, &failure, silence, limit),
            (CalledServer::Several(_), Some(instance)) => {
                instance.record_silence(&failure, silence, limit);
            }
            (CalledServer::Several(_), None) => {}
        }
        failure
    }
}

impl Drop for CallAttempts {
    fn drop(&mut self) {
        self.context.tasks.abort();
    }
}
