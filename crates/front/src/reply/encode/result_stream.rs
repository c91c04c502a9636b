//! A large result as a stream: only one chunk of it is held, and the part that [`HeldPart`] has
//! room for if structured content may have to be repeated as text.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use weir_core::reply::PayloadSource;
use weir_core::{Failure, FailureKind};
use weir_era::render;
use weir_layers::failure;
use weir_layers::http::answer::RenderedMessage;
use weir_layers::http::batch_budget::BatchShare;
use weir_layers::http::held_part::HeldPart;
use weir_layers::request::outcome::{PendingOutcome, RequestOutcome, ResponseOutcome};
use weir_wire::splice::{
    BlockReplacer, ObjectEdits, ObjectRewriter, ObservedMembers, SpliceError, StructuredAsText,
};
use weir_wire::{RequestId, meta};

/// A whole response message as chunks: head, edited result, closing brace.
pub(crate) struct ResultStream {
    ready: VecDeque<Bytes>,
    source: Box<dyn PayloadSource>,
    /// Absent once the result is over.
    edits: Option<StreamedResultEdits>,
    failed: bool,
    counted: PendingOutcome,
}

/// The edits of a result in order: each reads the output of the one before.
pub(super) struct StreamedResultEdits {
    blocks: Option<BlockReplacer>,
    structured: Option<(StructuredAsText, HeldPart)>,
    rewriter: ObjectRewriter,
    /// The number of hidden characters removed so far.
    removed: u64,
}

impl ResultStream {
    pub(super) fn new(
        id: &RequestId,
        edits: StreamedResultEdits,
        source: Box<dyn PayloadSource>,
    ) -> Self {
        let ready = VecDeque::from([weir_wire::write::response_head(id)]);
        Self {
            ready,
            source,
            edits: Some(edits),
            failed: false,
            counted: PendingOutcome::default(),
        }
    }

    /// The outcome of the result, known at its end.
    pub(super) fn pending_outcome(&self) -> PendingOutcome {
        self.counted.clone()
    }

    /// Reports the outcome to `counted` instead.
    pub(super) fn report_outcome_to(&mut self, counted: PendingOutcome) {
        self.counted = counted;
    }

    /// The next bytes of the message; `None` after its end. A failure breaks the answer off,
    /// because its head is already sent.
    pub(super) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            let Some(edits) = &mut self.edits else {
                return Poll::Ready(None);
            };
            edits.release_held();
            if self.failed {
                return Poll::Ready(None);
            }
            let chunk = ready!(self.source.poll_chunk(cx));
            edits.set_removed(self.source.removed());
            let mut out: Vec<Bytes> = Vec::new();
            let fed = match chunk {
                Some(Ok(chunk)) => edits.feed(&chunk, &mut out).map_err(malformed_result),
                Some(Err(failure)) => Err(failure),
                None => match self.edits.take().map(StreamedResultEdits::finish) {
                    Some(Err(error)) => Err(malformed_result(error)),
                    seen => {
                        let seen = seen.and_then(Result::ok).unwrap_or_default();
                        self.counted
                            .set(RequestOutcome::of_result(seen.value(render::IS_ERROR)));
                        out.push(Bytes::from_static(b"}"));
                        Ok(())
                    }
                },
            };
            if let Err(failure) = fed {
                self.failed = true;
                // The client has a part of the result: no failure is a mere refusal any more.
                let outcome = RequestOutcome::of_failure(&failure).max(RequestOutcome::Failed);
                self.counted.set(outcome);
                tracing::warn!(
                    error = failure.cause(),
                    "response body aborted: result stream failed"
                );
                return Poll::Ready(Some(Err(failure)));
            }
            self.ready
                .extend(out.into_iter().filter(|part| !part.is_empty()));
        }
    }

    /// Collects the whole message within its share of a batch.
    pub(super) async fn collect(
        mut self,
        mut share: BatchShare<'_>,
    ) -> Result<RenderedMessage, Failure> {
        let mut chunks = Vec::new();
        while let Some(chunk) = poll_fn(|cx| self.poll_chunk(cx)).await {
            let chunk = chunk?;
            share.grow(chunk.len())?;
            chunks.push(chunk);
        }
        let outcome = ResponseOutcome::Later(self.counted).outcome();
        Ok(failure::ok_message(share.hold(join(&chunks)), outcome))
    }
}

impl StreamedResultEdits {
    pub(super) fn new(
        blocks: Option<BlockReplacer>,
        structured: Option<(StructuredAsText, HeldPart)>,
        edits: ObjectEdits,
    ) -> Self {
        Self {
            blocks,
            structured,
            rewriter: ObjectRewriter::new(edits),
            removed: 0,
        }
    }

    /// Sets the number of hidden characters removed so far; the result states it at its end.
    fn set_removed(&mut self, removed: u64) {
        if removed != self.removed {
            self.removed = removed;
            self.rewriter
                .add_late_meta(meta::WEIR_CLEANED, removed.to_string().into());
        }
    }

    fn feed(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), SpliceError> {
        if self.blocks.is_none() && self.structured.is_none() {
            return self.rewriter.feed(chunk, out);
        }
        let mut parts = vec![chunk.clone()];
        if let Some(blocks) = &mut self.blocks {
            parts.clear();
            blocks.feed(chunk, &mut parts)?;
        }
        if let Some((edit, held)) = &mut self.structured {
            let mut edited: Vec<Bytes> = Vec::with_capacity(parts.len());
            parts.iter().try_for_each(|part| {
                edit.feed(part, &mut |bytes| held.try_grow(bytes), &mut edited)
            })?;
            parts = edited;
        }
        parts
            .iter()
            .try_for_each(|part| self.rewriter.feed(part, out))
    }

    /// Releases held memory once all output was taken.
    fn release_held(&mut self) {
        if let Some((edit, held)) = &mut self.structured
            && edit.held() == 0
        {
            held.release();
        }
    }

    fn finish(self) -> Result<ObservedMembers, SpliceError> {
        self.rewriter.finish()
    }
}

pub(super) fn malformed_result(error: SpliceError) -> Failure {
    Failure::new(FailureKind::BadAnswer, "The server's result is malformed").because(error)
}

impl http_body::Body for ResultStream {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.poll_chunk(cx)
            .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// Joins chunks.
fn join(chunks: &[Bytes]) -> Bytes {
    let mut out = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    chunks.iter().for_each(|chunk| out.extend_from_slice(chunk));
    out.freeze()
}
