//! A large result on its way through: never more of it is held than one chunk.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use weir_core::reply::PayloadSource;
use weir_core::{Failure, FailureKind};
use weir_era::render;
use weir_wire::RequestId;
use weir_wire::splice::{Blocks, Edits, Rewriter, SpliceError};

use super::BatchRoom;
use crate::answer::Said;
use crate::tally::{Counted, Later, Tally};

/// A whole response message as chunks: head, edited result, closing brace.
pub(crate) struct Results {
    ready: VecDeque<Bytes>,
    source: Box<dyn PayloadSource>,
    blocks: Option<Blocks>,
    rewriter: Option<Rewriter>,
    failed: bool,
    counted: Later,
}

impl Results {
    pub(super) fn new(
        id: &RequestId,
        (blocks, edits): (Option<Blocks>, Edits),
        source: Box<dyn PayloadSource>,
    ) -> Self {
        let ready = VecDeque::from([weir_wire::write::response_head(id)]);
        Self { ready, source, blocks, rewriter: Some(Rewriter::new(edits)), failed: false, counted: Later::new() }
    }

    /// What the result counts as, once it is over.
    pub(super) fn counted(&self) -> Later {
        self.counted.clone()
    }

    /// Says it there instead.
    pub(super) fn count_in(&mut self, counted: Later) {
        self.counted = counted;
    }

    /// The next bytes of the message; `None` after its end. A failure breaks the answer off: its head is gone already.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            let Some(rewriter) = &mut self.rewriter else { return Poll::Ready(None) };
            if self.failed {
                return Poll::Ready(None);
            }
            let chunk = ready!(self.source.poll_chunk(cx));
            let mut out: Vec<Bytes> = Vec::new();
            let fed = match chunk {
                Some(Ok(chunk)) => through(self.blocks.as_mut(), rewriter, &chunk, &mut out).map_err(broken),
                Some(Err(failure)) => Err(failure),
                None => match self.rewriter.take().map(Rewriter::finish) {
                    Some(Err(error)) => Err(broken(error)),
                    seen => {
                        let seen = seen.and_then(Result::ok).unwrap_or_default();
                        self.counted.say(Tally::of_result(seen.value(render::IS_ERROR)));
                        out.push(Bytes::from_static(b"}"));
                        Ok(())
                    }
                },
            };
            if let Err(failure) = fed {
                self.failed = true;
                self.counted.say(Tally::Failed);
                tracing::warn!(error = %failure, "a large result broke off in the middle");
                return Poll::Ready(Some(Err(failure)));
            }
            self.ready.extend(out.into_iter().filter(|part| !part.is_empty()));
        }
    }

    /// The whole message, as far as there is room for it.
    pub(super) async fn collect(mut self, room: &BatchRoom) -> Result<Said, Failure> {
        let (mut chunks, mut share) = (Vec::new(), room.share());
        while let Some(chunk) = poll_fn(|cx| self.poll_chunk(cx)).await {
            let chunk = chunk?;
            room.grow(&mut share, chunk.len())?;
            chunks.push(chunk);
        }
        let tally = Counted::Later(self.counted).tally();
        Ok(Said::new(StatusCode::OK, share.hold(super::join(&chunks)), tally))
    }
}

/// The blocks first: what they leave is what the rewriter edits.
fn through(
    blocks: Option<&mut Blocks>,
    rewriter: &mut Rewriter,
    chunk: &Bytes,
    out: &mut Vec<Bytes>,
) -> Result<(), SpliceError> {
    let Some(blocks) = blocks else { return rewriter.feed(chunk, out) };
    let mut parts: Vec<Bytes> = Vec::new();
    blocks.feed(chunk, &mut parts)?;
    parts.iter().try_for_each(|part| rewriter.feed(part, out))
}

fn broken(error: SpliceError) -> Failure {
    Failure::new(FailureKind::BadAnswer, "The server's result is malformed").because(error)
}

impl http_body::Body for Results {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.poll_chunk(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
