//! The body of a request, of either version of HTTP.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

/// The error that breaks a body off.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request from the socket, or from inside the process. Trailers are left out.
pub struct RequestBody(RequestSource);

enum RequestSource {
    Http1(Incoming),
    Http2(Http2RequestBody),
    /// The body of a request from inside the process; `None` once it is read.
    Whole(Option<Bytes>),
}

struct Http2RequestBody {
    /// Present until this is dropped.
    stream: Option<RecvStream>,
    /// Present until the body is read.
    expectation: Option<Expectation>,
    /// Takes the stream of a body that was not read to its end.
    unread: Option<oneshot::Sender<RecvStream>>,
}

impl Drop for Http2RequestBody {
    fn drop(&mut self) {
        let stream = self.stream.take().filter(|stream| !stream.is_end_stream());
        if let (Some(stream), Some(unread)) = (stream, self.unread.take()) {
            // Without a receiver the whole HTTP/2 stream is over.
            let _ = unread.send(stream);
        }
    }
}

/// The expectation of `100 Continue` by the client of one HTTP/2 stream (RFC 9110, section 10.1.1).
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectation(Arc<AtomicBool>);

impl Expectation {
    /// The expectation of a request with these headers, if it has one.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let expected = headers.get(header::EXPECT)?;
        let is_known = expected.as_bytes().eq_ignore_ascii_case(b"100-continue");
        is_known.then(Self::default)
    }

    /// Notes that the body is waited for.
    fn mark_awaited(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once, after the body was waited for.
    pub(crate) fn is_due(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl RequestBody {
    pub(crate) fn http1(incoming: Incoming) -> Self {
        Self(RequestSource::Http1(incoming))
    }

    /// The body of an HTTP/2 request. The receiver gets its stream if the body is not read to its
    /// end.
    pub(crate) fn http2(
        stream: RecvStream,
        expectation: Option<Expectation>,
    ) -> (Self, oneshot::Receiver<RecvStream>) {
        let (unread, receiver) = oneshot::channel();
        let body = Self(RequestSource::Http2(Http2RequestBody {
            stream: Some(stream),
            expectation,
            unread: Some(unread),
        }));
        (body, receiver)
    }

    /// The expectation of the client, until the body is read.
    pub(crate) fn expectation(&self) -> Option<Expectation> {
        match &self.0 {
            RequestSource::Http2(body) => body.expectation.clone(),
            RequestSource::Http1(_) | RequestSource::Whole(_) => None,
        }
    }

    /// A body inside the process, whole from the start.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
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
            RequestSource::Http2(Http2RequestBody {
                stream: Some(stream),
                expectation,
                ..
            }) => {
                let polled = stream.poll_data(cx);
                let expected = expectation.take();
                if let (Poll::Pending, Some(expected)) = (&polled, expected) {
                    expected.mark_awaited();
                }
                Poll::Ready(std::task::ready!(polled).map(|data| {
                    let data = data?;
                    // Bytes that were read open the flow-control window again.
                    stream.flow_control().release_capacity(data.len())?;
                    Ok(Frame::data(data))
                }))
            }
            RequestSource::Http2(Http2RequestBody { stream: None, .. }) => Poll::Ready(None),
            RequestSource::Whole(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            RequestSource::Http1(incoming) => incoming.is_end_stream(),
            RequestSource::Http2(body) => {
                body.stream.as_ref().is_none_or(RecvStream::is_end_stream)
            }
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

/// Without the bytes, which are the client's own.
impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}
