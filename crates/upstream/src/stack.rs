//! The stack that a call passes on its way to a server, outermost layer first:
//!
//! ```text
//! deadline   idle and hard limits hold over everything below, second tries included
//! bound      at most so many calls in flight; above the tries, so that a call counts once
//! repeat     once after a broken connection, if that does no harm
//! resend     on a listed proof that nothing ran, once for each
//! instance   of a server with several URLs, one for each attempt
//! breaker    below the tries: a server that is down is not tried again
//! transport  the server's era and transport
//! ```
//!
//! A reply that still runs keeps its in-flight permit and its limits until it ends or is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use weir_core::call::{Call, TraceContext};
use weir_core::call_limits::{CallLimits, CallTimeLimits, TimeoutHandler};
use weir_core::port::BoxFuture;
use weir_core::reply::Reply;
use weir_core::upstream::OutboundCall;

use crate::call_attempts::{CallAttempts, TimedServer};
use crate::called_server::CalledServer;
use crate::in_flight::UpstreamInFlightLimit;
use crate::repeat;

/// The longest wait for a call's first event before its reply is handed on without it.
const FIRST_EVENT_WAIT: Duration = Duration::from_secs(1);

/// The layers of one upstream, and the transport below them.
#[derive(Debug)]
pub(crate) struct CallStack {
    pub(crate) in_flight: UpstreamInFlightLimit,
    pub(crate) attempts: Arc<CallAttempts>,
    /// True if the baggage of callers is forwarded.
    baggage: bool,
}

impl CallStack {
    pub(crate) fn new(server: CalledServer, baggage: bool) -> Self {
        let context = server.context();
        Self {
            in_flight: UpstreamInFlightLimit::new(context.label.clone(), context.bounds.in_flight),
            attempts: Arc::new(CallAttempts::new(server)),
            baggage,
        }
    }

    /// Makes a call. Returns the reply once its first event is known, or after a short wait.
    /// Dropping the future or the reply cancels the call at the server.
    ///
    /// The layers are put together before the future begins: that of an async function would have
    /// the call as its argument too.
    pub(crate) fn call(
        &self,
        outbound: OutboundCall,
    ) -> impl Future<Output = Reply> + Send + use<> {
        self.call_within(self.in_flight.clone(), outbound)
    }

    /// Makes a call as [`Self::call`] does, with a permit of `bound`.
    pub(crate) fn call_within(
        &self,
        bound: UpstreamInFlightLimit,
        outbound: OutboundCall,
    ) -> impl Future<Output = Reply> + Send + use<> {
        let limits = CallTimeLimits::new(outbound.deadlines, outbound.begun);
        let silence_limit = outbound.deadlines.silence();
        let (outbound, route) = self.attempts.server.route(self.strip_baggage(outbound));
        let attempts = self.attempts.clone();
        let server = TimedServer {
            attempts: attempts.clone(),
            route: route.clone(),
            silence_limit,
        };
        // Repeat, above resend, breaker and transport: each try passes all of them.
        let tries = Box::pin(repeat::call_with_repeat(attempts, outbound, route));
        async move {
            // Bound, above the tries: a call counts once.
            let permit = match bound.acquire(limits.next_deadline()).await {
                Ok(permit) => permit,
                Err(busy) => return Reply::ended(busy),
            };
            // Deadline, around all tries: second tries get no further time.
            call_within_limits(server, limits, permit, tries).await
        }
    }

    /// Removes the baggage from the call, unless this server may have it.
    pub(crate) fn strip_baggage(&self, outbound: OutboundCall) -> OutboundCall {
        if self.baggage || outbound.call.trace.baggage.is_none() {
            return outbound;
        }
        let trace = TraceContext {
            baggage: None,
            ..outbound.call.trace.clone()
        };
        OutboundCall {
            call: Arc::new(Call {
                trace,
                ..(*outbound.call).clone()
            }),
            ..outbound
        }
    }
}

/// Runs a call with its permit and within its time limits. Returns the reply once its first event
/// is known, or after [`FIRST_EVENT_WAIT`].
async fn call_within_limits(
    server: impl TimeoutHandler + 'static,
    limits: CallTimeLimits,
    permit: OwnedSemaphorePermit,
    mut running: BoxFuture<'static, Reply>,
) -> Reply {
    let deadline = limits
        .next_deadline()
        .min(limits.last_activity() + FIRST_EVENT_WAIT);
    let reply = match tokio::time::timeout_at(deadline, &mut running).await {
        Ok(reply) => reply,
        Err(_) => Reply::of_call(running),
    };
    reply.with_limits(|| CallLimits::new(server, limits, permit))
}
