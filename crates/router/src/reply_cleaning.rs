//! Removal of hidden characters from the answers to one call: from errors, questions and
//! notifications always, from results as configured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use weir_clean::{Cleaner, DocumentKind};
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::clean;
use weir_core::endpoint::Endpoint;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::UpstreamId;
use weir_core::reply::{Payload, PayloadSource, ReplyEnd};
use weir_wire::method::Method;
use weir_wire::splice::{ByteSink, MetaEdits, ObjectEdits};
use weir_wire::splitter::WITHHELD;
use weir_wire::{meta, scan};

/// The number of characters removed from the end of a call. That of a streamed result grows while
/// it passes.
#[derive(Debug, Default)]
pub(super) struct RemovedCount {
    whole: u64,
    streamed: Option<Arc<AtomicU64>>,
}

impl RemovedCount {
    /// The number so far.
    pub(super) fn total(&self) -> u64 {
        self.whole
            + self
                .streamed
                .as_ref()
                .map_or(0, |streamed| streamed.load(Ordering::Relaxed))
    }

    /// The number from a whole result.
    pub(super) const fn of_whole(&self) -> u64 {
        self.whole
    }

    fn whole(whole: u64) -> Self {
        Self {
            whole,
            streamed: None,
        }
    }
}

/// A whole result with the number removed from it, for its client. The number of a streamed one
/// comes with its source ([`PayloadSource::removed`]).
pub(super) fn with_removed_count(whole: u64, end: ReplyEnd) -> ReplyEnd {
    match end {
        ReplyEnd::Complete(Payload::Whole(result)) if whole > 0 => {
            ReplyEnd::Complete(Payload::Cleaned {
                result,
                removed: whole,
            })
        }
        end @ (ReplyEnd::Complete(_)
        | ReplyEnd::InputRequired(_)
        | ReplyEnd::Parked { .. }
        | ReplyEnd::Task(_)
        | ReplyEnd::Failed(_)) => end,
    }
}

/// A result to be kept or shown inside of a task's state: without the members of one hop, and with
/// the number of removed characters.
///
/// # Errors
///
/// `BadAnswer`: it is malformed.
pub(super) fn strip_hop_members(result: &Bytes, removed: u64) -> Result<Bytes, Failure> {
    let edits = ObjectEdits::new()
        .without_variants_of(&WITHHELD)
        .meta(MetaEdits::new().drop_owned());
    let edits = if removed > 0 {
        edits.add_meta(meta::WEIR_CLEANED, removed.to_string())
    } else {
        edits
    };
    let bare = edits.apply_checked(result).map(|(bare, _)| bare);
    bare.map_err(|error| {
        Failure::new(
            FailureKind::BadAnswer,
            "The server's result of the task is malformed",
        )
        .because(error)
    })
}

/// The number of removed characters that [`strip_hop_members`] wrote into a result.
pub(super) fn removed_count_of(bare: &[u8]) -> u64 {
    let members = scan::find(bare, "_meta").map(|at| &bare[at]);
    let removed = members.and_then(|members| {
        scan::find(members, meta::WEIR_CLEANED).and_then(|at| scan::integer(&members[at]))
    });
    removed
        .and_then(|removed| u64::try_from(removed).ok())
        .unwrap_or_default()
}

/// The kind of a method's result, if there are texts for readers in it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "six of the 38 methods have texts for readers"
)]
pub(super) fn document(method: Method) -> Option<DocumentKind> {
    match method {
        Method::ToolsCall
        | Method::TasksGet
        | Method::TasksUpdate
        | Method::TasksCancel
        | Method::TasksResult => Some(DocumentKind::ToolResult),
        Method::PromptsGet => Some(DocumentKind::PromptResult),
        // Resources are data.
        _ => None,
    }
}

/// The cleaning of the answers to one call.
#[derive(Debug)]
pub(super) struct ReplyCleaning {
    upstream: UpstreamId,
    /// The kind of its result; absent if results are not cleaned.
    result: Option<DocumentKind>,
}

impl ReplyCleaning {
    pub(super) fn of(endpoint: Option<&Endpoint>, item: &CatalogItem, call: &Call) -> Self {
        let wanted = item
            .terms
            .clean
            .unwrap_or_else(|| endpoint.is_some_and(|endpoint| endpoint.clean));
        Self {
            upstream: item.tool.upstream.clone(),
            result: document(call.method).filter(|_| wanted),
        }
    }

    /// The cleaning of all but results.
    #[cfg(test)]
    pub(super) fn plain(upstream: UpstreamId) -> Self {
        Self {
            upstream,
            result: None,
        }
    }

    /// The end without hidden characters, and their number. A streamed result is counted while it
    /// passes.
    pub(super) fn end(&self, end: ReplyEnd) -> (ReplyEnd, RemovedCount) {
        match (end, self.result) {
            (ReplyEnd::Complete(Payload::Whole(result)), Some(document)) => {
                let (result, removed) = clean::text(&self.upstream, document, result);
                (
                    ReplyEnd::Complete(Payload::Whole(result)),
                    RemovedCount::whole(removed),
                )
            }
            (ReplyEnd::Complete(Payload::Stream(inner)), Some(document)) => {
                let (cleaner, upstream) = (Some(Cleaner::new(document)), self.upstream.clone());
                let removed: Arc<AtomicU64> = Arc::default();
                let passing = CleanedStream {
                    inner,
                    cleaner,
                    upstream,
                    removed: removed.clone(),
                };
                let removed = RemovedCount {
                    whole: 0,
                    streamed: Some(removed),
                };
                (
                    ReplyEnd::Complete(Payload::Stream(Box::new(passing))),
                    removed,
                )
            }
            (ReplyEnd::InputRequired(Payload::Whole(result)), _) => {
                let (result, removed) =
                    clean::text(&self.upstream, DocumentKind::ToolResult, result);
                (
                    ReplyEnd::InputRequired(Payload::Whole(result)),
                    RemovedCount::whole(removed),
                )
            }
            (ReplyEnd::Parked { id, result }, _) => {
                let (result, removed) =
                    clean::text(&self.upstream, DocumentKind::ToolResult, result);
                (
                    ReplyEnd::Parked { id, result },
                    RemovedCount::whole(removed),
                )
            }
            (ReplyEnd::Task(created), _) => {
                let (created, removed) =
                    clean::text(&self.upstream, DocumentKind::TaskState, created);
                (ReplyEnd::Task(created), RemovedCount::whole(removed))
            }
            (ReplyEnd::Failed(failure), _) => {
                let mut removed = 0;
                let failure = failure
                    .with_upstream_error(|error| removed = clean::error(&self.upstream, error));
                (
                    ReplyEnd::Failed(Box::new(failure)),
                    RemovedCount::whole(removed),
                )
            }
            (end, _) => (end, RemovedCount::default()),
        }
    }

    /// `params` of a notification of the server.
    pub(super) fn notification(&self, params: Bytes) -> Bytes {
        clean::text(&self.upstream, DocumentKind::Notification, params).0
    }

    /// The state of a task. Its result is cleaned by itself.
    pub(super) fn task_state(&self, state: Bytes) -> Bytes {
        clean::text(&self.upstream, DocumentKind::TaskState, state).0
    }

    /// `params` of a question of the server.
    pub(super) fn question(&self, params: Bytes) -> Bytes {
        clean::text(&self.upstream, DocumentKind::Question, params).0
    }
}

/// A result that is cleaned while it passes.
struct CleanedStream {
    inner: Box<dyn PayloadSource>,
    /// Absent once the result has ended.
    cleaner: Option<Cleaner>,
    upstream: UpstreamId,
    removed: Arc<AtomicU64>,
}

impl PayloadSource for CleanedStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let Some(cleaner) = &mut self.cleaner else {
                return Poll::Ready(None);
            };
            let mut out = BytesMut::new();
            match ready!(self.inner.poll_chunk(cx)) {
                Some(Ok(chunk)) => {
                    let mut passed = CleanedChunk::default();
                    cleaner.feed(&chunk, &mut passed);
                    self.removed
                        .store(cleaner.removed().total(), Ordering::Relaxed);
                    if let Some(chunk) = passed.into_chunk() {
                        return Poll::Ready(Some(Ok(chunk)));
                    }
                }
                Some(Err(failure)) => {
                    self.end(&mut out);
                    return Poll::Ready(Some(Err(failure)));
                }
                None => {
                    self.end(&mut out);
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(out.freeze())));
                    }
                }
            }
        }
    }

    fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }
}

impl CleanedStream {
    fn end(&mut self, out: &mut BytesMut) {
        if let Some(cleaner) = self.cleaner.take() {
            let removed = cleaner.finish(out);
            self.removed.store(removed.total(), Ordering::Relaxed);
            clean::count(&self.upstream, removed);
        }
    }
}

/// A cleaned chunk: a slice of the original as long as one is enough, else a copy.
#[derive(Default)]
struct CleanedChunk {
    piece: Bytes,
    copied: BytesMut,
}

impl ByteSink for CleanedChunk {
    fn pass(&mut self, chunk: &Bytes, range: std::ops::Range<usize>) {
        if self.piece.is_empty() && self.copied.is_empty() {
            self.piece = chunk.slice(range);
        } else {
            self.put(&chunk[range]);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if !self.piece.is_empty() {
            let piece = std::mem::take(&mut self.piece);
            self.copied.extend_from_slice(&piece);
        }
        self.copied.extend_from_slice(bytes);
    }
}

impl CleanedChunk {
    fn into_chunk(self) -> Option<Bytes> {
        let chunk = if self.copied.is_empty() {
            self.piece
        } else {
            self.copied.freeze()
        };
        (!chunk.is_empty()).then_some(chunk)
    }
}
