//! Requests of weir's own: only their whole result matters, within the deadline of lists or of
//! probes.

use std::future::{Future, poll_fn};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_core::reply::{Payload, PayloadSource, ReplyEnd, ReplyEvent};
use weir_core::upstream::ListKind;
use weir_core::{Failure, FailureKind, Reply};
use weir_wire::method::Method;

use crate::failed_attempt::FailedAttempt;
use crate::upstream_context::UpstreamContext;

/// Returns the whole result that a reply ends with.
///
/// # Errors
/// As the reply ends; `BadAnswer` for a result that asks for input or is larger than `max_reply`.
pub(crate) async fn read_result(
    site: &UpstreamContext,
    mut reply: Reply,
) -> Result<Bytes, Failure> {
    loop {
        match reply.next().await {
            // A request of weir's own has no client that could be asked.
            Some(ReplyEvent::Note(_) | ReplyEvent::Ask(_)) => {}
            Some(ReplyEvent::End(ReplyEnd::Complete(
                Payload::Whole(bytes) | Payload::Cleaned { result: bytes, .. },
            ))) => {
                return Ok(bytes);
            }
            Some(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(stream)))) => {
                return collect_stream(site, stream).await;
            }
            Some(ReplyEvent::End(
                ReplyEnd::InputRequired(_) | ReplyEnd::Parked { .. } | ReplyEnd::Task(_),
            )) => {
                return Err(site.fail(
                    FailureKind::BadAnswer,
                    "The upstream asks for input where it must not",
                ));
            }
            Some(ReplyEvent::End(ReplyEnd::Failed(failure))) => return Err(*failure),
            None => return Err(Failure::internal("a reply ended without an end")),
        }
    }
}

/// Runs one of weir's own requests within the deadline of lists.
///
/// # Errors
/// The request's own, or `TimedOut`.
pub(crate) async fn within_list_deadline<T>(
    site: &UpstreamContext,
    request: impl Future<Output = Result<T, FailedAttempt>>,
) -> Result<T, FailedAttempt> {
    within(site, site.own_deadlines.list, request).await
}

/// Runs one of weir's own requests within this time limit.
///
/// # Errors
/// As [`within_list_deadline`].
pub(crate) async fn within<T>(
    site: &UpstreamContext,
    limit: Duration,
    request: impl Future<Output = Result<T, FailedAttempt>>,
) -> Result<T, FailedAttempt> {
    match tokio::time::timeout(limit, request).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let failure = site.fail(FailureKind::TimedOut, "The upstream did not answer in time");
            Err(FailedAttempt::new(failure).mark_not_reached())
        }
    }
}

/// Makes a request of weir's own, and repeats it once if it asks for a list and its connection
/// broke.
pub(crate) async fn request_with_repeat<T, A>(
    site: &UpstreamContext,
    method: Method,
    ask: impl Fn() -> A,
) -> Result<T, FailedAttempt>
where
    A: Future<Output = Result<T, FailedAttempt>>,
{
    let first = ask().await;
    if take_repetition_for(site, method, &first) {
        ask().await
    } else {
        first
    }
}

fn take_repetition_for<T>(
    site: &UpstreamContext,
    method: Method,
    outcome: &Result<T, FailedAttempt>,
) -> bool {
    if ListKind::ALL
        .into_iter()
        .all(|kind| kind.method() != method)
    {
        return false;
    }
    site.repeat_budget.count_call();
    matches!(outcome, Err(refusal) if refusal.failure.is_connection_lost())
        && site
            .repeat_budget
            .take_repetition(site.millis(), site.label())
}

async fn collect_stream(
    site: &UpstreamContext,
    mut stream: Box<dyn PayloadSource>,
) -> Result<Bytes, Failure> {
    let mut held = BytesMut::new();
    while let Some(chunk) = poll_fn(|cx| stream.poll_chunk(cx)).await {
        let chunk = chunk?;
        if held.len() + chunk.len() > site.bounds.max_reply {
            return Err(site.fail(FailureKind::BadAnswer, "The upstream's answer is too large"));
        }
        held.extend_from_slice(&chunk);
    }
    Ok(held.freeze())
}
