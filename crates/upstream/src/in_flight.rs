//! The bound of the calls in flight at one upstream.
//!
//! Calls do not queue here: fairness between callers is decided before. A reply that still runs
//! keeps its permit until it ends or is dropped.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_core::reply::{Payload, PayloadSource, Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_core::{Failure, FailureKind};
use weir_upstream_core::started_reply::poll_next_event;
use weir_upstream_core::upstream_label::UpstreamLabel;

/// The longest wait for the permit of a call that has just ended.
const PERMIT_RETURN_WAIT: Duration = Duration::from_millis(100);

/// The permits of the calls in flight. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct InFlightLimit {
    label: UpstreamLabel,
    most: usize,
    permits: Arc<Semaphore>,
}

impl InFlightLimit {
    /// Makes the permits that the upstream's bounds allow.
    pub(crate) fn new(label: UpstreamLabel, most: usize) -> Self {
        let permits = Arc::new(Semaphore::new(most));
        Self {
            label,
            most,
            permits,
        }
    }

    /// Makes a call with a permit. A call that follows directly on the end of another waits
    /// shortly, until that one's permit is returned.
    pub(crate) async fn call<F: Future<Output = Reply>>(self, call: impl FnOnce() -> F) -> Reply {
        let permit = match self.try_acquire() {
            Some(permit) => Some(permit),
            None => {
                let freed =
                    tokio::time::timeout(PERMIT_RETURN_WAIT, self.permits.clone().acquire_owned())
                        .await;
                freed.ok().and_then(Result::ok)
            }
        };
        let Some(permit) = permit else {
            let text = "The upstream has as many calls in flight as it may: try again shortly";
            return Reply::ended(self.label.fail(FailureKind::Busy, text));
        };
        let reply = call().await;
        if reply.is_ended() {
            reply
        } else {
            Reply::live(PermitReply {
                reply,
                permit: Some(permit),
            })
        }
    }

    /// Takes a permit if one is free.
    pub(crate) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Returns the number of calls in flight.
    pub(crate) fn count(&self) -> usize {
        self.most.saturating_sub(self.permits.available_permits())
    }

    /// Waits for the end of all calls in flight, at most `grace`.
    pub(crate) async fn wait_for_end(&self, grace: Duration) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let _still_running = tokio::time::timeout(grace, self.permits.acquire_many(all)).await;
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
