//! Attempts at calls and other requests of one server: its transport behind the circuit breaker,
//! and the record of their outcomes.

use std::sync::Arc;
use std::time::Duration;

use weir_core::call_limits::{PassedLimit, TimeoutHandler};
use weir_core::reply::Reply;
use weir_core::upstream::{ListWatch, OutboundCall, ResourceUpdates, TaskNotifications};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::called_server::CalledServer;
use crate::instances::{InstanceRoute, ServerInstance};
use crate::server_transport::ServerTransport;
use crate::single_server::SingleServerWatch;

/// The transport and the circuit breaker of one server. Every running call has a share of it: the
/// last one to end ends the server's tasks.
#[derive(Debug)]
pub(crate) struct CallAttempts {
    pub(crate) server: CalledServer,
}

impl CallAttempts {
    pub(crate) fn new(server: CalledServer) -> Self {
        Self { server }
    }

    pub(crate) fn context(&self) -> &Arc<UpstreamContext> {
        self.server.context()
    }

    /// Makes one attempt. While the breaker is open, one call a second reaches the server. `again`
    /// is the proof of the attempt before, `route` that of the call over several URLs. There, an
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
            .admit(|| self.context().clock.now())
            .map_err(|wait| {
                let text = "The upstream has not been reachable for a while: try again later";
                let failure = self.context().label.fail(FailureKind::Unavailable, text);
                FailedAttempt::new(failure.retry_after(wait)).mark_not_attempted()
            })?;
        let start = one.breaker.begin();
        let reply = one.transport.call(outbound, again).await;
        one.record(start, reply.as_ref().err());
        reply
    }

    /// Opens a watch of the server's lists, and records the outcome.
    pub(crate) async fn watch(
        &self,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, Failure> {
        let opened = match &self.server {
            CalledServer::One(one) => {
                let start = one.breaker.begin();
                let opened = one.transport.watch(class).await;
                one.record_opened(start, opened.as_ref().err());
                opened.map(|inner| {
                    Box::new(SingleServerWatch {
                        inner,
                        server: one.clone(),
                    }) as Box<dyn ListWatch>
                })
            }
            CalledServer::Several(all) => all.watch(class).await,
        };
        opened.map_err(|refusal| refusal.failure)
    }

    /// Opens a subscription to updates of single resources, and records the outcome.
    pub(crate) async fn updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let opened = match &self.server {
            CalledServer::One(one) => {
                let start = one.breaker.begin();
                let opened = one.transport.updates().await;
                one.record_opened(start, opened.as_ref().err());
                opened
            }
            CalledServer::Several(all) => all.updates().await,
        };
        opened.map_err(|refusal| refusal.failure)
    }

    /// Subscribes to a task's status; absent if the server has no such subscription.
    pub(crate) async fn follow(&self, outbound: OutboundCall) -> Option<TaskNotifications> {
        let (outbound, route) = self.server.route(outbound);
        match &self.server {
            CalledServer::One(one) => one.transport.follow(&outbound).await,
            CalledServer::Several(all) => all.follow(&outbound, route.as_deref()?).await,
        }
    }

    /// Opens the session for the calls of a client's session, at a server over HTTP.
    pub(crate) async fn open_client_session(&self, outbound: OutboundCall) {
        let (outbound, route) = self.server.route(outbound);
        match (&self.server, route) {
            (CalledServer::One(one), _) => {
                if let ServerTransport::Http(server) = &one.transport {
                    server.open_client_session(&outbound).await;
                }
            }
            (CalledServer::Several(all), Some(route)) => {
                all.open_client_session(&outbound, &route).await
            }
            (CalledServer::Several(_), None) => {}
        }
    }

    /// Returns the handles of the instance that has a task, and the server's own id of the task.
    pub(crate) fn of_task<'a>(&'a self, native: &'a str) -> (&'a UpstreamContext, &'a str) {
        let (instance, native) = self.server.find_task(native);
        let context = instance.map_or(self.context(), |one| &one.context);
        (context, native)
    }
}

/// The server of one call, as its time limits need it.
pub(crate) struct TimedServer {
    pub(crate) attempts: Arc<CallAttempts>,
    /// The route of the call over several URLs.
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
            (CalledServer::One(one), _) => one.record_life(),
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
        let label = &self.attempts.context().label;
        let failure = label.fail(FailureKind::TimedOut, text);
        let (silence, limit) = (passed.silence, self.silence_limit);
        match (&self.attempts.server, self.instance()) {
            (CalledServer::One(one), _) => one.record_silence(&failure, silence, limit),
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
        self.context().tasks.abort();
    }
}
