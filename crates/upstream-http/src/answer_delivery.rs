//! The delivery of the client's answers to a server that waits for them within a call. The answer
//! has a connection of its own: it can be lost while the stream of the call is whole.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_core::FailureKind;
use weir_core::port::Backoff;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::failed_attempt::{FailedAttempt, Reach};
use weir_upstream_core::own_requests;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::http_post;
use crate::side_channel::SideChannel;

/// The pauses between attempts to deliver an answer, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The fate of the answers that a server waits for within one call.
pub(crate) struct AnswerWatch {
    lost: CancellationToken,
    lost_wait: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The end of the session.
    over: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// The reason that a server will not get an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndeliveredAnswer {
    /// It did not take the answer.
    Undelivered,
    /// It read no messages, so its session was ended.
    SessionOver,
}

impl AnswerWatch {
    /// The watch of a call whose messages go out on `side`.
    pub(crate) fn new(side: Option<&dyn SideChannel>) -> Box<Self> {
        let lost = CancellationToken::new();
        let over = side.and_then(SideChannel::over);
        Box::new(Self {
            lost_wait: Box::pin(lost.clone().cancelled_owned()),
            lost,
            over: over.map(|over| Box::pin(over.cancelled_owned())),
        })
    }

    /// The token that is cancelled if an answer does not reach the server.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Ready once the server will not get an answer.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<UndeliveredAnswer> {
        if let Some(over) = &mut self.over
            && over.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(UndeliveredAnswer::SessionOver);
        }
        self.lost_wait
            .as_mut()
            .poll(cx)
            .map(|()| UndeliveredAnswer::Undelivered)
    }
}

/// Posts a message that has no response, within the deadline of lists. An answer has `lost`: it is
/// posted again after a failure that may pass, and `lost` is cancelled if it did not arrive. A
/// server that gets an answer twice ignores the second, which has the same id.
pub(crate) async fn deliver(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
    headers: Vec<(HeaderName, HeaderValue)>,
    message: Bytes,
    lost: Option<CancellationToken>,
) {
    let posting = async {
        let mut pauses = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        loop {
            let (headers, message) = (headers.clone(), message.clone());
            let sent = http_post::post_notification(context, http, headers, message).await;
            match sent {
                Err(refusal) if lost.is_some() && may_pass(&refusal) => {
                    tracing::debug!(upstream = %context.label.id, error = refusal.failure.cause(), "answer to upstream is sent again");
                }
                sent => return sent,
            }
            sleep(pauses.next(context.clock.random())).await;
        }
    };
    let sent = own_requests::within_list_deadline(&context.own_requests, posting).await;
    if let Err(refusal) = sent {
        tracing::debug!(upstream = %context.label.id, error = refusal.failure.cause(), "message to upstream not delivered");
        if let Some(lost) = lost {
            lost.cancel();
        }
    }
}

/// True if the server did not refuse the message itself: it was not reached, is busy, or its
/// connection broke.
fn may_pass(refusal: &FailedAttempt) -> bool {
    let busy = [FailureKind::Busy, FailureKind::Limit];
    refusal.proof.is_some()
        || refusal.reach == Reach::NotReached
        || refusal.failure.is_connection_lost()
        || busy.contains(refusal.failure.kind())
}
