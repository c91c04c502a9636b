//! The stack that a call passes on its way to a server, outermost first:
//!
//! ```text
//! deadline   idle and hard limits hold over everything below, second tries included
//! bound      at most so many calls in flight; above the tries, so that a call counts once
//! repeat     once after a broken connection, if that does no harm
//! resend     on a listed proof that nothing ran, once for each
//! breaker    below the tries: a server that is down is not tried again
//! speak      the server's era and transport
//! ```
//!
//! A reply that still runs keeps its in-flight permit and its limits until it ends or is dropped.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::sync::OwnedSemaphorePermit;
use weir_core::port::Fut;
use weir_core::reply::{Payload, PayloadSource, Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_core::telemetry::instruments;
use weir_core::upstream::OutboundCall;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;

use crate::call_time_limits::{self, CallTimeLimits, FIRST_EVENT_WAIT};
use crate::failed_attempt::FailedAttempt;
use crate::repeat;
use crate::upstream_service::UpstreamService;

/// The longest wait for the permit of a call that has just ended.
const PERMIT_RETURN_WAIT: Duration = Duration::from_millis(100);

/// Makes a call. Returns the reply once its first event is known, or after [`FIRST_EVENT_WAIT`].
/// Dropping the future or the reply cancels the call at the server.
pub(crate) async fn call(server: Arc<UpstreamService>, outbound: OutboundCall) -> Reply {
    let limits = CallTimeLimits::new(outbound.deadlines);
    let mut running: Fut<'static, Reply> = Box::pin(limit_in_flight(
        server.clone(),
        server.strip_baggage(outbound),
    ));
    let patience = limits
        .next_deadline()
        .min(tokio::time::Instant::now() + FIRST_EVENT_WAIT);
    match tokio::time::timeout_at(patience, &mut running).await {
        Ok(reply) if reply.is_ended() => reply,
        Ok(reply) => call_time_limits::enforce(server, limits, reply),
        Err(_) => {
            call_time_limits::enforce(server, limits, Reply::live(PendingReply::Call(running)))
        }
    }
}

/// A call without a first event yet.
enum PendingReply {
    Call(Fut<'static, Reply>),
    Reply(Reply),
}

impl ReplySource for PendingReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match self {
                Self::Call(running) => *self = Self::Reply(ready!(running.as_mut().poll(cx))),
                Self::Reply(reply) => return poll_next_event(reply, cx),
            }
        }
    }
}

/// Polls the next event. Reading a reply after its end is an internal error.
pub(crate) fn poll_next_event(reply: &mut Reply, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
    reply.poll_next(cx).map(|event| {
        event.unwrap_or_else(|| {
            ReplyEvent::End(Failure::internal("a reply was read on after its end").into())
        })
    })
}

/// Limits the calls in flight. Calls do not queue here: fairness between callers is decided before.
/// A call that follows directly on the end of another waits shortly, until that one's permit is
/// returned.
async fn limit_in_flight(server: Arc<UpstreamService>, outbound: OutboundCall) -> Reply {
    let place = match server.call_permits.clone().try_acquire_owned() {
        Ok(place) => Some(place),
        Err(_) => {
            let freed = tokio::time::timeout(
                PERMIT_RETURN_WAIT,
                server.call_permits.clone().acquire_owned(),
            )
            .await;
            freed.ok().and_then(Result::ok)
        }
    };
    let Some(place) = place else {
        let text = "The upstream has as many calls in flight as it may: try again shortly";
        return Reply::ended(server.site.fail(FailureKind::Busy, text));
    };
    let reply = repeat::call_with_repeat(&server, outbound).await;
    if reply.is_ended() {
        reply
    } else {
        Reply::live(PermitReply {
            reply,
            permit: Some(place),
        })
    }
}

/// A running reply and its permit. A result that streams takes the permit along.
struct PermitReply {
    reply: Reply,
    permit: Option<OwnedSemaphorePermit>,
}

impl ReplySource for PermitReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        match ready!(poll_next_event(&mut self.reply, cx)) {
            ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(source))) => {
                let placed = PermitPayload {
                    source,
                    _permit: self.permit.take(),
                };
                Poll::Ready(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(
                    Box::new(placed),
                ))))
            }
            event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                Poll::Ready(event)
            }
        }
    }
}

struct PermitPayload {
    source: Box<dyn PayloadSource>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl PayloadSource for PermitPayload {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, Failure>>> {
        self.source.poll_chunk(cx)
    }
}

/// Sends the call again on proof that it did not run, at most once for each kind of proof. `used`
/// has the proofs that were taken before.
pub(crate) async fn call_with_resend(
    server: &UpstreamService,
    outbound: &OutboundCall,
    used: &mut Vec<ResendProof>,
) -> Result<Reply, FailedAttempt> {
    loop {
        let refusal = match call_through_breaker(server, outbound, used.last().copied()).await {
            Ok(reply) => return Ok(reply),
            Err(refusal) => refusal,
        };
        let Some(proof) = refusal.proof.filter(|proof| !used.contains(proof)) else {
            return Err(refusal);
        };
        let labels = [
            server.site.label(),
            KeyValue::new("reason", proof.metric_label()),
        ];
        instruments().upstream_retries.add(1, &labels);
        used.push(proof);
    }
}

/// Applies the circuit breaker: while it is open, one call a second reaches the server.
async fn call_through_breaker(
    server: &UpstreamService,
    outbound: &OutboundCall,
    again: Option<ResendProof>,
) -> Result<Reply, FailedAttempt> {
    server.breaker.admit(server.site.now()).map_err(|wait| {
        let text = "The upstream has not been reachable for a while: try again later";
        FailedAttempt::new(
            server
                .site
                .fail(FailureKind::Unavailable, text)
                .retry_after(wait),
        )
        .mark_not_attempted()
    })?;
    let spoken = server.transport.call(outbound, again).await;
    server.record_attempt(spoken.as_ref().err());
    spoken
}
