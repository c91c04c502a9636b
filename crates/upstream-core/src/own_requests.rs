//! Requests of weir's own: only their whole result matters, within the deadline of lists or of
//! probes.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_core::reply::{Payload, PayloadSource, ReplyEnd, ReplyEvent};
use weir_core::upstream::ListKind;
use weir_core::{Failure, FailureKind, Reply};
use weir_wire::method::Method;

use crate::failed_attempt::FailedAttempt;
use crate::repeat_budget::RepeatBudget;
use crate::settings::OwnDeadlines;
use crate::upstream_clock::UpstreamClock;
use crate::upstream_label::UpstreamLabel;

/// The limits of weir's own requests to one server.
#[derive(Clone, Debug)]
pub struct OwnRequestLimits {
    /// The id of the upstream, for failures.
    pub label: UpstreamLabel,
    /// The time.
    pub clock: UpstreamClock,
    /// Their time limits.
    pub deadlines: OwnDeadlines,
    /// The most bytes of one reply.
    pub max_reply: usize,
    /// The budget of repeated requests.
    pub repeat_budget: Arc<RepeatBudget>,
}

/// Returns the whole result that a reply ends with.
///
/// # Errors
/// As the reply ends; `BadAnswer` for a result that asks for input or is larger than `max_reply`.
pub async fn read_result(limits: &OwnRequestLimits, mut reply: Reply) -> Result<Bytes, Failure> {
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
                return collect_stream(limits, stream).await;
            }
            Some(ReplyEvent::End(
                ReplyEnd::InputRequired(_) | ReplyEnd::Parked { .. } | ReplyEnd::Task(_),
            )) => {
                return Err(limits.label.fail(
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
pub async fn within_list_deadline<T>(
    limits: &OwnRequestLimits,
    request: impl Future<Output = Result<T, FailedAttempt>>,
) -> Result<T, FailedAttempt> {
    within(limits, limits.deadlines.list, request).await
}

/// Runs one of weir's own requests within this time limit.
///
/// # Errors
/// As [`within_list_deadline`].
pub async fn within<T>(
    limits: &OwnRequestLimits,
    limit: Duration,
    request: impl Future<Output = Result<T, FailedAttempt>>,
) -> Result<T, FailedAttempt> {
    match tokio::time::timeout(limit, request).await {
        Ok(outcome) => outcome.map_err(reword_loss),
        Err(_) => Err(FailedAttempt::new(late(&limits.label)).mark_not_reached()),
    }
}

/// Rewords the failure of a request whose connection or process was lost: the usual text warns of a
/// call that may have run, and no call did.
pub(crate) fn reword_loss(mut attempt: FailedAttempt) -> FailedAttempt {
    if attempt.failure.is_connection_lost() {
        let text = "The connection to the upstream was lost before it answered a request of weir's";
        attempt.failure = attempt.failure.with_message(text);
    }
    attempt
}

/// Makes the failure of a request that was not answered within its deadline.
pub fn late(label: &UpstreamLabel) -> Failure {
    label.fail(FailureKind::TimedOut, "The upstream did not answer in time")
}

/// Makes a request of weir's own, and repeats it once if it asks for a list and its connection
/// broke.
pub async fn request_with_repeat<T, A>(
    limits: &OwnRequestLimits,
    method: Method,
    ask: impl Fn() -> A,
) -> Result<T, FailedAttempt>
where
    A: Future<Output = Result<T, FailedAttempt>>,
{
    let first = ask().await;
    if take_repetition_for(limits, method, &first) {
        ask().await
    } else {
        first
    }
}

fn take_repetition_for<T>(
    limits: &OwnRequestLimits,
    method: Method,
    outcome: &Result<T, FailedAttempt>,
) -> bool {
    if ListKind::ALL
        .into_iter()
        .all(|kind| kind.method() != method)
    {
        return false;
    }
    limits.repeat_budget.count_call();
    matches!(outcome, Err(refusal) if refusal.failure.is_connection_lost())
        && limits
            .repeat_budget
            .take_repetition(limits.clock.millis(), limits.label.attribute())
}

async fn collect_stream(
    limits: &OwnRequestLimits,
    mut stream: Box<dyn PayloadSource>,
) -> Result<Bytes, Failure> {
    let mut held = BytesMut::new();
    while let Some(chunk) = poll_fn(|cx| stream.poll_chunk(cx)).await {
        let chunk = chunk?;
        if held.len() + chunk.len() > limits.max_reply {
            return Err(limits
                .label
                .fail(FailureKind::BadAnswer, "The upstream's answer is too large"));
        }
        held.extend_from_slice(&chunk);
    }
    Ok(held.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_of_an_own_request_does_not_warn_of_a_call() {
        let lost = Failure::new(FailureKind::ResultUnknown, "it may have run").connection_lost();
        let attempt = reword_loss(FailedAttempt::new(lost.because("reset")));
        assert!(attempt.failure.is_connection_lost());
        let cause = attempt.failure.cause();
        assert!(
            !cause.contains("may have run") && cause.contains("reset"),
            "{cause}"
        );
        let other = Failure::new(FailureKind::ResultUnknown, "it may have run");
        let attempt = reword_loss(FailedAttempt::new(other));
        assert_eq!(attempt.failure.message(), "it may have run");
    }
}
