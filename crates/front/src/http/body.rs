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

use crate::request::endpoint_meters::EndpointMeters;
use crate::request::request_span::RequestSpan;

/// The error that breaks a body off.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request from the socket, or from inside the process. Trailers are left out.
pub(crate) struct RequestBody(RequestSource);

enum RequestSource {
    Http1(Incoming),
    Http2(RecvStream),
    /// The body of a request from inside the process; `None` once it is read.
    Whole(Option<Bytes>),
}

impl RequestBody {
    pub(crate) fn http1(incoming: Incoming) -> Self {
        Self(RequestSource::Http1(incoming))
    }

    pub(crate) fn http2(stream: RecvStream) -> Self {
        Self(RequestSource::Http2(stream))
    }

    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(RequestSource::Whole(
            Some(bytes).filter(|bytes| !bytes.is_empty()),
        ))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            RequestSource::Http1(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            RequestSource::Http2(stream) => {
                let polled = std::task::ready!(stream.poll_data(cx));
                Poll::Ready(polled.map(|data| {
                    let data = data?;
                    // Bytes that were read open the flow-control window again.
                    stream.flow_control().release_capacity(data.len())?;
                    Ok(Frame::data(data))
                }))
            }
            RequestSource::Whole(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            RequestSource::Http1(incoming) => incoming.is_end_stream(),
            RequestSource::Http2(stream) => stream.is_end_stream(),
            RequestSource::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            RequestSource::Http1(incoming) => incoming.size_hint(),
            RequestSource::Http2(_) => SizeHint::default(),
            RequestSource::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}

/// Labels of a request for the metrics.
#[derive(Debug)]
pub(crate) struct RequestLabels {
    pub(crate) method: &'static str,
    pub(crate) era: &'static str,
    /// The metrics of the endpoint; absent for a request without an endpoint.
    pub(crate) meters: Option<Arc<EndpointMeters>>,
    /// The trace span.
    pub(crate) span: Option<RequestSpan>,
    /// The latest end of its call, independent of the client's reading speed.
    pub(crate) until: Option<Instant>,
}

impl RequestLabels {
    /// The labels of a request that was not decoded.
    pub(crate) const NONE: Self = Self {
        method: "none",
        era: "none",
        meters: None,
        span: None,
        until: None,
    };
}

/// The answer to a request.
pub(crate) type HttpAnswer = http::Response<ResponseBody>;

/// A response body, with the labels of its request.
pub(crate) struct ResponseBody {
    content: BodyContent,
    pub(crate) labels: RequestLabels,
}

enum BodyContent {
    Empty,
    Whole(Bytes),
    Streamed(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError> + Send>>),
}

impl ResponseBody {
    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self::of(BodyContent::Empty)
    }

    /// A streamed body.
    pub(crate) fn new<B>(made: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Self::of(BodyContent::Streamed(Box::pin(made.map_err(Into::into))))
    }

    /// The labels; none are left.
    pub(crate) fn take_labels(&mut self) -> RequestLabels {
        std::mem::replace(&mut self.labels, RequestLabels::NONE)
    }

    fn of(content: BodyContent) -> Self {
        Self {
            content,
            labels: RequestLabels::NONE,
        }
    }
}

impl From<Bytes> for ResponseBody {
    fn from(whole: Bytes) -> Self {
        Self::of(if whole.is_empty() {
            BodyContent::Empty
        } else {
            BodyContent::Whole(whole)
        })
    }
}

/// The empty body, as layers answer with it.
impl Default for ResponseBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let BodyContent::Streamed(made) = &mut self.content {
            return made.as_mut().poll_frame(cx);
        }
        match std::mem::replace(&mut self.content, BodyContent::Empty) {
            BodyContent::Whole(whole) => Poll::Ready(Some(Ok(Frame::data(whole)))),
            BodyContent::Empty | BodyContent::Streamed(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Empty => true,
            BodyContent::Whole(_) => false,
            BodyContent::Streamed(made) => made.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Empty => SizeHint::with_exact(0),
            BodyContent::Whole(whole) => SizeHint::with_exact(whole.len() as u64),
            BodyContent::Streamed(made) => made.size_hint(),
        }
    }
}
