//! The body of an answer: nothing, one piece, or something that is still being made. Most answers are one piece, which
//! needs no allocation of its own.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::meters::Meters;
use crate::told::Told;

/// What breaks a body off.
pub(crate) type Broken = Box<dyn Error + Send + Sync>;

/// What a request turned out to be, for the metrics.
#[derive(Debug)]
pub(crate) struct Labels {
    pub(crate) method: &'static str,
    pub(crate) era: &'static str,
    /// Where it counts; `None`: it is of no endpoint.
    pub(crate) meters: Option<Arc<Meters>>,
    /// What is told of it.
    pub(crate) span: Option<Told>,
}

impl Labels {
    /// Nothing is known of the request.
    pub(crate) const NONE: Self = Self { method: "none", era: "none", meters: None, span: None };
}

/// The body, and what it answers.
pub(crate) struct Body {
    content: Content,
    pub(crate) labels: Labels,
}

enum Content {
    Empty,
    Whole(Bytes),
    Made(Pin<Box<dyn http_body::Body<Data = Bytes, Error = Broken> + Send>>),
}

impl Body {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        Self::of(Content::Empty)
    }

    /// Bytes that are still being made.
    pub(crate) fn new<B>(made: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Broken>,
    {
        Self::of(Content::Made(Box::pin(made.map_err(Into::into))))
    }

    fn of(content: Content) -> Self {
        Self { content, labels: Labels::NONE }
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Self {
        Self::of(if whole.is_empty() { Content::Empty } else { Content::Whole(whole) })
    }
}

/// What a layer answers by itself.
impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Content::Made(made) = &mut self.content {
            return made.as_mut().poll_frame(cx);
        }
        match std::mem::replace(&mut self.content, Content::Empty) {
            Content::Whole(whole) => Poll::Ready(Some(Ok(Frame::data(whole)))),
            Content::Empty | Content::Made(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Whole(_) => false,
            Content::Made(made) => made.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Whole(whole) => SizeHint::with_exact(whole.len() as u64),
            Content::Made(made) => made.size_hint(),
        }
    }
}
