//! Large results of calls, which are passed on in pieces.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use weir_core::reply::PayloadSource;
use weir_core::{Failure, FailureKind};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::splitter::ResponseEnd;

use crate::http_post::unreadable_failure;
use crate::lost_connection::connection_lost_failure;
use crate::message_collector::ReleaseRule;
use crate::pending_request::PendingRequest;
use crate::response_drain::drain_response;
use crate::response_part::{HeldLargeResult, ResponsePart};
use crate::response_reader::ResponseReader;

/// A large result that has arrived, forwarded in pieces so that its memory is freed with them.
pub(crate) struct ArrivedResult(pub(crate) Option<HeldLargeResult>);

impl PayloadSource for ArrivedResult {
    fn poll_chunk(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let Some(held) = &mut self.0 else {
            return Poll::Ready(None);
        };
        if let Some(block) = held.blocks.pop() {
            return Poll::Ready(Some(Ok(block)));
        }
        let rest = self.0.take().map(|held| held.end.rest);
        Poll::Ready(rest.map(Ok))
    }
}

/// A large result that is arriving. Its last bytes are forwarded once it is known to be this
/// request's complete result.
pub(crate) struct LargeResult {
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) answer: Option<ResponseReader>,
    pub(crate) release: ReleaseRule,
    pub(crate) pending: PendingRequest,
}

impl LargeResult {
    /// Returns the fault of a result that was forwarded but turned out to be invalid.
    fn late_fault(&self, end: &ResponseEnd) -> Option<Failure> {
        if !self.release.is_of(end.response.id.as_ref()) {
            self.context.label.count_dropped("late_id");
            return Some(self.context.label.fail(
                FailureKind::BadAnswer,
                "The upstream's answer is to another request",
            ));
        }
        if !self.release.is_plain(end.result_type.as_deref()) {
            self.context.label.count_dropped("late_type");
            let text = "The upstream says too late that its answer is no complete result";
            return Some(self.context.label.fail(FailureKind::BadAnswer, text));
        }
        None
    }
}

impl PayloadSource for LargeResult {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(None);
        };
        let mut part = ready!(answer.poll_part(cx));
        // The server's reconnection time may stand between the lines of an event.
        while let Ok(Some(ResponsePart::Mark { .. })) = part {
            part = ready!(answer.poll_part(cx));
        }
        let failure = match part {
            Ok(Some(ResponsePart::Result(chunk))) => return Poll::Ready(Some(Ok(chunk))),
            Ok(Some(ResponsePart::LargeEnd(end))) => match self.late_fault(&end) {
                Some(fault) => fault,
                None => {
                    self.pending.end();
                    if let Some(answer) = self.answer.take() {
                        drain_response(&self.context, answer);
                    }
                    return Poll::Ready(Some(Ok(end.rest)));
                }
            },
            Ok(Some(_)) => self
                .context
                .label
                .fail(FailureKind::BadAnswer, "The upstream's answer breaks off"),
            Ok(None) => connection_lost_failure(&self.context.label),
            Err(error) => unreadable_failure(&self.context.label, error),
        };
        if let Some(mut answer) = self.answer.take() {
            answer.retire_connection();
        }
        Poll::Ready(Some(Err(failure)))
    }
}
