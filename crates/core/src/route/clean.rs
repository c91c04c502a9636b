//! Removal of hidden characters from server messages: from errors, questions and notifications always, from results as configured.
//! `weir-clean` has the tables of characters and strings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use weir_clean::{Cleaner, Counts, Document};
use weir_wire::method::Method;
use weir_wire::scan;
use weir_wire::splice::Sink;
use weir_wire::write::ObjectWriter;

use crate::call::Call;
use crate::catalog::Item;
use crate::endpoint::Endpoint;
use crate::failure::{Failure, UpstreamError};
use crate::names::UpstreamId;
use crate::reply::{End, Payload, PayloadSource};
use crate::telemetry::cleaned;

/// The number of characters removed from the end of a call. Clones share the count of a streamed result.
#[derive(Clone, Debug, Default)]
pub(super) struct Removed {
    whole: u64,
    streamed: Option<Arc<AtomicU64>>,
}

impl Removed {
    /// The number so far.
    pub(super) fn total(&self) -> u64 {
        self.whole + self.streamed.as_ref().map_or(0, |streamed| streamed.load(Ordering::Relaxed))
    }
}

/// The cleaning of the answers to one call.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    upstream: Option<UpstreamId>,
    /// The kind of its result; `None` where results are not cleaned.
    result: Option<Document>,
}

impl Cleaning {
    pub(super) fn of(endpoint: Option<&Endpoint>, item: &Item, call: &Call) -> Self {
        let wanted = item.terms.clean.unwrap_or_else(|| endpoint.is_some_and(|endpoint| endpoint.clean));
        let result = match call.method {
            Method::ToolsCall | Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
                Some(Document::ToolResult)
            }
            Method::PromptsGet => Some(Document::PromptResult),
            // Resources are data.
            _ => None,
        };
        Self { upstream: Some(item.tool.upstream.clone()), result: result.filter(|_| wanted) }
    }

    /// The end without hidden characters, and their number. A streamed result is counted while it passes.
    pub(super) fn end(&self, end: End) -> (End, Removed) {
        match (end, self.result) {
            (End::Complete(Payload::Whole(result)), Some(document)) => {
                let (result, whole) = self.whole(document, result);
                (End::Complete(Payload::Whole(result)), Removed { whole, streamed: None })
            }
            (End::Complete(Payload::Stream(inner)), Some(document)) => {
                let streamed = Arc::new(AtomicU64::new(0));
                let passing = Passing {
                    inner,
                    cleaner: Some(Cleaner::new(document)),
                    upstream: self.upstream.clone(),
                    removed: streamed.clone(),
                };
                let removed = Removed { whole: 0, streamed: Some(streamed) };
                (End::Complete(Payload::Stream(Box::new(passing))), removed)
            }
            (End::InputRequired(Payload::Whole(result)), _) => {
                let (result, whole) = self.whole(Document::ToolResult, result);
                (End::InputRequired(Payload::Whole(result)), Removed { whole, streamed: None })
            }
            (End::Parked { id, result }, _) => {
                let (result, whole) = self.whole(Document::ToolResult, result);
                (End::Parked { id, result }, Removed { whole, streamed: None })
            }
            (End::Failed(failure), _) => {
                let mut whole = 0;
                let failure = failure.with_upstream_error(|error| whole = self.error(error));
                (End::Failed(Box::new(failure)), Removed { whole, streamed: None })
            }
            (end, _) => (end, Removed::default()),
        }
    }

    /// `params` of a notification of the server.
    pub(super) fn notification(&self, params: Bytes) -> Bytes {
        self.whole(Document::Notification, params).0
    }

    /// `params` of a question of the server.
    pub(super) fn question(&self, params: Bytes) -> Bytes {
        self.whole(Document::Question, params).0
    }

    fn whole(&self, document: Document, text: Bytes) -> (Bytes, u64) {
        match weir_clean::clean(document, &text) {
            None => (text, 0),
            Some(done) => {
                count(self.upstream.as_ref(), done.removed);
                (done.bytes.into(), done.removed.total())
            }
        }
    }

    /// Cleans an error in place. Gives how many characters were removed.
    fn error(&self, error: &mut UpstreamError) -> u64 {
        let mut out = BytesMut::with_capacity(error.message.len() + 32);
        let mut object = ObjectWriter::new(&mut out);
        object.string("message", &error.message);
        if let Some(data) = &error.data {
            object.raw("data", data);
        }
        object.end();
        let Some(done) = weir_clean::clean(Document::Error, &out) else { return 0 };
        let text = Bytes::from(done.bytes);
        if let Some(message) = scan::find(&text, "message").and_then(|at| scan::string(&text[at])) {
            error.message = message.into_owned();
        }
        if error.data.is_some() {
            error.data = scan::find(&text, "data").map(|at| text.slice(at));
        }
        count(self.upstream.as_ref(), done.removed);
        done.removed.total()
    }
}

/// `params` of a question that came outside of any call, without hidden characters.
pub(super) fn question(upstream: &UpstreamId, params: Bytes) -> Bytes {
    let cleaning = Cleaning { upstream: Some(upstream.clone()), result: None };
    cleaning.question(params)
}

/// The text of a definition that a server lists, without hidden characters.
pub(crate) fn definition(upstream: &UpstreamId, item: Bytes) -> Bytes {
    let cleaning = Cleaning { upstream: Some(upstream.clone()), result: None };
    cleaning.whole(Document::Definition, item).0
}

/// A server's `instructions`, without hidden characters.
pub(crate) fn instructions(upstream: &UpstreamId, text: String) -> String {
    let mut out = BytesMut::with_capacity(text.len() + 32);
    ObjectWriter::new(&mut out).string("instructions", &text).end();
    let cleaning = Cleaning { upstream: Some(upstream.clone()), result: None };
    match cleaning.whole(Document::Instructions, out.freeze()) {
        (_, 0) => text,
        (cleaned, _) => {
            let said = scan::find(&cleaned, "instructions").and_then(|at| scan::string(&cleaned[at]));
            said.unwrap_or_default().into_owned()
        }
    }
}

fn count(upstream: Option<&UpstreamId>, removed: Counts) {
    if let Some(upstream) = upstream {
        for removal in &weir_clean::REMOVALS {
            cleaned(upstream, removal.name, removed.of(removal.kind));
        }
    }
}

/// A result that is cleaned while it passes.
struct Passing {
    inner: Box<dyn PayloadSource>,
    /// Gone once the result has ended.
    cleaner: Option<Cleaner>,
    upstream: Option<UpstreamId>,
    removed: Arc<AtomicU64>,
}

impl PayloadSource for Passing {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let Some(cleaner) = &mut self.cleaner else { return Poll::Ready(None) };
            let mut out = BytesMut::new();
            match ready!(self.inner.poll_chunk(cx)) {
                Some(Ok(chunk)) => {
                    let mut passed = Passed::default();
                    cleaner.feed(&chunk, &mut passed);
                    self.removed.store(cleaner.removed().total(), Ordering::Relaxed);
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
}

impl Passing {
    fn end(&mut self, out: &mut BytesMut) {
        if let Some(cleaner) = self.cleaner.take() {
            let removed = cleaner.finish(out);
            self.removed.store(removed.total(), Ordering::Relaxed);
            count(self.upstream.as_ref(), removed);
        }
    }
}

/// A cleaned chunk: a slice of the original as long as one is enough, else a copy.
#[derive(Default)]
struct Passed {
    piece: Bytes,
    copied: BytesMut,
}

impl Sink for Passed {
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

impl Passed {
    fn into_chunk(self) -> Option<Bytes> {
        let chunk = if self.copied.is_empty() { self.piece } else { self.copied.freeze() };
        (!chunk.is_empty()).then_some(chunk)
    }
}
