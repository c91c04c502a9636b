//! The body of a request, of either version of HTTP, and the body of an answer: empty, one chunk,
//! or a stream. Most answers are one chunk, which needs no allocation of its own.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::meters::Meters;
use crate::told::Told;

/// The error that breaks a body off.
pub(crate) type Broken = Box<dyn Error + Send + Sync>;

/// The body of a request from the socket, or from inside the process. Trailers are left out.
pub(crate) struct RequestBody(Source);

enum Source {
    Http1(Incoming),
    Http2(RecvStream),
    /// The body of a request from inside the process; `None` once it is read.
    Whole(Option<Bytes>),
}

impl RequestBody {
    pub(crate) fn http1(incoming: Incoming) -> Self {
        Self(Source::Http1(incoming))
    }

    pub(crate) fn http2(stream: RecvStream) -> Self {
        Self(Source::Http2(stream))
    }

    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(Source::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.0 {
            Source::Http1(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Source::Http2(stream) => {
                let polled = std::task::ready!(stream.poll_data(cx));
                Poll::Ready(polled.map(|data| {
                    let data = data?;
                    // Bytes that were read open the flow-control window again.
                    stream.flow_control().release_capacity(data.len())?;
                    Ok(Frame::data(data))
                }))
            }
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(incoming) => incoming.is_end_stream(),
            Source::Http2(stream) => stream.is_end_stream(),
            Source::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(incoming) => incoming.size_hint(),
            Source::Http2(_) => SizeHint::default(),
            Source::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}

/// Labels of a request for the metrics.
#[derive(Debug)]
pub(crate) struct Labels {
    pub(crate) method: &'static str,
    pub(crate) era: &'static str,
    /// The metrics of the endpoint; absent for a request without an endpoint.
    pub(crate) meters: Option<Arc<Meters>>,
    /// The trace span.
    pub(crate) span: Option<Told>,
    /// The latest end of its call, independent of the client's reading speed.
    pub(crate) until: Option<Instant>,
}

impl Labels {
    /// The labels of a request that was not decoded.
    pub(crate) const NONE: Self = Self {
        method: "none",
        era: "none",
        meters: None,
        span: None,
        until: None,
    };
}

/// A response body, with the labels of its request.
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
    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self::of(Content::Empty)
    }

    /// A streamed body.
    pub(crate) fn new<B>(made: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Broken>,
    {
        Self::of(Content::Made(Box::pin(made.map_err(Into::into))))
    }

    fn of(content: Content) -> Self {
        Self {
            content,
            labels: Labels::NONE,
        }
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Self {
        Self::of(if whole.is_empty() {
            Content::Empty
        } else {
            Content::Whole(whole)
        })
    }
}

/// The empty body, as layers answer with it.
impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
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
