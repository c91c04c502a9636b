//! The body of a forwarded answer, as it comes from the other replica.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use weir_http2_client::Http2Response;
use weir_listen::BodyError;

use crate::peer_stream::poll_received;

/// The body of a forwarded answer. Dropping it resets the stream. Trailers are left out.
pub(crate) struct PeerAnswerBody {
    answer: Http2Response,
    /// The bytes that are left, if the head declares them.
    left: Option<u64>,
}

impl PeerAnswerBody {
    pub(crate) fn new(answer: Http2Response, headers: &HeaderMap) -> Self {
        let declared = headers.get(header::CONTENT_LENGTH);
        let left = declared.and_then(|value| value.to_str().ok()?.parse().ok());
        Self { answer, left }
    }
}

impl http_body::Body for PeerAnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let data = match ready!(poll_received(&mut this.answer, cx)) {
            Some(Ok(data)) => data,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
        this.left = this.left.map(|left| left.saturating_sub(bytes));
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        if self.answer.is_over() {
            return SizeHint::with_exact(0);
        }
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl fmt::Debug for PeerAnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerAnswerBody").finish_non_exhaustive()
    }
}
