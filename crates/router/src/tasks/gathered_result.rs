//! The gathering of a result that streams, because the whole result is kept as that of a task.

use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use weir_core::failure::{Failure, FailureKind};
use weir_core::reply::{Payload, PayloadSource, ReplyEnd};

/// The largest result that is kept for a client that wanted a task.
const MAX_KEPT_RESULT_BYTES: usize = 4 << 20;

/// A result of which a part has arrived.
pub(crate) struct GatheredResult {
    source: Box<dyn PayloadSource>,
    held: BytesMut,
}

impl GatheredResult {
    pub(crate) fn new(source: Box<dyn PayloadSource>) -> Self {
        Self {
            source,
            held: BytesMut::new(),
        }
    }

    /// Returns the end with the whole result, or with the failure of a result that is too large.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEnd> {
        loop {
            match ready!(self.source.poll_chunk(cx)) {
                Some(Ok(chunk)) if self.held.len() + chunk.len() <= MAX_KEPT_RESULT_BYTES => {
                    self.held.extend_from_slice(&chunk);
                }
                Some(Ok(_)) => {
                    let text = "The result is too large to be kept as a task's";
                    let failure = Failure::new(FailureKind::BadAnswer, text);
                    return Poll::Ready(failure.into());
                }
                Some(Err(failure)) => return Poll::Ready(failure.into()),
                None => {
                    let whole = self.held.split().freeze();
                    return Poll::Ready(ReplyEnd::Complete(Payload::Whole(whole)));
                }
            }
        }
    }
}
