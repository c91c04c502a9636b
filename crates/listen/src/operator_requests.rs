//! Requests of operators that one replica forwards to another over the cluster listener.
//!
//! They carry the credentials of the operator, and the other replica checks them like those of its
//! own operators' listener.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use weir_core::port::BoxFuture;

use crate::forwarding::{ForwardedBody, ForwardedClient};
use crate::request_body::{BodyError, RequestBody};
use crate::request_service::ServedBody;

/// The header that marks the request of an operator, and its answer. A replica that is still
/// starting, or of a version without such requests, takes one for a request of a client, and its
/// answer has no such header.
pub const OPERATOR_HEADER: HeaderName = HeaderName::from_static("weir-operator");

/// The value of [`OPERATOR_HEADER`]: the version of such requests.
pub const OPERATOR_REQUESTS: HeaderValue = HeaderValue::from_static("1");

/// An operator's request that another replica forwards.
#[derive(Debug)]
pub struct OperatorRequest {
    /// The request, with the operator's credentials.
    pub request: Request<RequestBody>,
    /// The operator's connection to the other replica.
    pub client: ForwardedClient,
}

/// Answers the requests of operators that other replicas forward.
pub trait OperatorRequests: Send + Sync {
    /// Answers one request. Dropping the future does not undo a change that it has made.
    fn answer(&self, request: OperatorRequest) -> BoxFuture<'static, Response<Bytes>>;
}

/// The answerer of operators' requests, which is there once the operators' side has started.
pub type OperatorRequestsSlot = Arc<OnceLock<Arc<dyn OperatorRequests>>>;

/// Answers an operator's request.
pub(crate) fn answer<B: Send + 'static>(
    answerer: &dyn OperatorRequests,
    request: OperatorRequest,
) -> BoxFuture<'static, Result<Response<ReplicaBody<B>>, Infallible>> {
    let answer = answerer.answer(request);
    Box::pin(async move {
        let mut answer = answer.await;
        answer
            .headers_mut()
            .insert(OPERATOR_HEADER, OPERATOR_REQUESTS);
        Ok(answer.map(|body| ReplicaBody::Whole(Some(body).filter(|body| !body.is_empty()))))
    })
}

/// The body of an answer of the cluster listener.
pub enum ReplicaBody<B> {
    /// The answer to a client's request.
    Client(B),
    /// The whole answer to an operator's request; `None` once it is written.
    Whole(Option<Bytes>),
    /// The answer to a stream of another replica.
    Stream(ForwardedBody),
}

impl<B: ServedBody> http_body::Body for ReplicaBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Client(body) => Pin::new(body).poll_frame(cx),
            Self::Whole(body) => Poll::Ready(body.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Client(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_none(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Client(body) => body.size_hint(),
            Self::Whole(body) => {
                let bytes = body.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
            Self::Stream(body) => body.size_hint(),
        }
    }
}

impl<B: ServedBody> ServedBody for ReplicaBody<B> {
    fn until(&self) -> Option<Instant> {
        match self {
            Self::Client(body) => body.until(),
            Self::Whole(_) | Self::Stream(_) => None,
        }
    }
}

impl<B> fmt::Debug for ReplicaBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaBody").finish_non_exhaustive()
    }
}
