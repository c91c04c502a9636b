//! The body of an answer: empty, one chunk, or a stream. Most answers are one chunk, which needs no
//! allocation of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use weir_listen::BodyError;

use crate::request::endpoint_meters::EndpointMeters;
use crate::request::message_labels::MessageLabels;
use crate::request::request_span::RequestSpan;

/// Labels of a request for the metrics.
#[derive(Debug)]
pub struct RequestLabels {
    /// The method and the era.
    pub(crate) message: MessageLabels,
    /// The metrics of the endpoint; absent for a request without an endpoint.
    pub meters: Option<Arc<EndpointMeters>>,
    /// The reason for which the request is refused or fails, for the log.
    pub(crate) reason: Option<&'static str>,
    /// The trace span.
    pub(crate) span: Option<RequestSpan>,
    /// The latest end of its call, independent of the client's reading speed.
    pub until: Option<Instant>,
}

impl RequestLabels {
    /// The labels of a request that was not decoded.
    pub(crate) const NONE: Self = Self {
        message: MessageLabels::NONE,
        meters: None,
        reason: None,
        span: None,
        until: None,
    };
}

/// The answer to a request.
pub type HttpAnswer = http::Response<ResponseBody>;

/// A response body, with the labels of its request.
pub struct ResponseBody {
    content: BodyContent,
    /// The labels of the request for the metrics.
    pub labels: RequestLabels,
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

enum BodyContent {
    Empty,
    Whole(Bytes),
    Streamed(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError> + Send>>),
}

impl ResponseBody {
    /// An empty body.
    pub fn empty() -> Self {
        Self::of(BodyContent::Empty)
    }

    /// A streamed body.
    pub fn new<B>(made: B) -> Self
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
