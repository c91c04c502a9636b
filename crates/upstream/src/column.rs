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

use crate::deadline::{self, Limits, PATIENCE};
use crate::refusal::Refusal;
use crate::repeat;
use crate::server::Server;

/// The longest wait for the permit of a call that has just ended.
const HANDOVER: Duration = Duration::from_millis(100);

/// Makes a call. Returns the reply once its first event is known, or after [`PATIENCE`]. Dropping
/// the future or the reply cancels the call at the server.
pub(crate) async fn call(server: Arc<Server>, outbound: OutboundCall) -> Reply {
    let limits = Limits::new(outbound.deadlines);
    let mut running: Fut<'static, Reply> =
        Box::pin(bound(server.clone(), server.at_border(outbound)));
    let patience = limits.next().min(tokio::time::Instant::now() + PATIENCE);
    match tokio::time::timeout_at(patience, &mut running).await {
        Ok(reply) if reply.is_ended() => reply,
        Ok(reply) => deadline::hold(server, limits, reply),
        Err(_) => deadline::hold(server, limits, Reply::live(Waiting::Call(running))),
    }
}

/// A call without a first event yet.
enum Waiting {
    Call(Fut<'static, Reply>),
    Reply(Reply),
}

impl ReplySource for Waiting {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match self {
                Self::Call(running) => *self = Self::Reply(ready!(running.as_mut().poll(cx))),
                Self::Reply(reply) => return next(reply, cx),
            }
        }
    }
}

/// Polls the next event. Reading a reply after its end is an internal error.
pub(crate) fn next(reply: &mut Reply, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
    reply.poll_next(cx).map(|event| {
        event.unwrap_or_else(|| {
            ReplyEvent::End(Failure::internal("a reply was read on after its end").into())
        })
    })
}

/// Limits the calls in flight. Calls do not queue here: fairness between callers is decided before.
/// A call that follows directly on the end of another waits shortly, until that one's permit is
/// returned.
async fn bound(server: Arc<Server>, outbound: OutboundCall) -> Reply {
    let place = match server.places.clone().try_acquire_owned() {
        Ok(place) => Some(place),
        Err(_) => {
            let freed = tokio::time::timeout(HANDOVER, server.places.clone().acquire_owned()).await;
            freed.ok().and_then(Result::ok)
        }
    };
    let Some(place) = place else {
        let text = "The upstream has as many calls in flight as it may: try again shortly";
        return Reply::ended(server.site.fail(FailureKind::Busy, text));
    };
    let reply = repeat::call(&server, outbound).await;
    if reply.is_ended() {
        reply
    } else {
        Reply::live(Placed {
            reply,
            place: Some(place),
        })
    }
}

/// A running reply and its permit. A result that streams takes the permit along.
struct Placed {
    reply: Reply,
    place: Option<OwnedSemaphorePermit>,
}

impl ReplySource for Placed {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        match ready!(next(&mut self.reply, cx)) {
            ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(source))) => {
                let placed = PlacedPayload {
                    source,
                    _place: self.place.take(),
                };
                Poll::Ready(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(
                    Box::new(placed),
                ))))
            }
            event => Poll::Ready(event),
        }
    }
}

struct PlacedPayload {
    source: Box<dyn PayloadSource>,
    _place: Option<OwnedSemaphorePermit>,
}

impl PayloadSource for PlacedPayload {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, Failure>>> {
        self.source.poll_chunk(cx)
    }
}

/// Sends the call again on proof that it did not run, at most once for each kind of proof. `used`
/// has the proofs that were taken before.
pub(crate) async fn attempts(
    server: &Server,
    outbound: &OutboundCall,
    used: &mut Vec<ResendProof>,
) -> Result<Reply, Refusal> {
    loop {
        let refusal = match guarded(server, outbound, used.last().copied()).await {
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
async fn guarded(
    server: &Server,
    outbound: &OutboundCall,
    again: Option<ResendProof>,
) -> Result<Reply, Refusal> {
    server.breaker.admit(server.site.now()).map_err(|wait| {
        let text = "The upstream has not been reachable for a while: try again later";
        Refusal::new(
            server
                .site
                .fail(FailureKind::Unavailable, text)
                .retry_after(wait),
        )
        .unasked()
    })?;
    let spoken = server.line.call(outbound, again).await;
    server.record(spoken.as_ref().err());
    spoken
}
