//! The GET stream of a session on another replica. It ends with the drain of this replica, between
//! two events, so that its client opens the next one elsewhere.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_listen::{BodyError, ForwardedBody};

/// A stream from another replica.
pub struct ForwardedStream {
    body: ForwardedBody,
    drained: Pin<Box<WaitForCancellationFutureOwned>>,
    /// True between two events.
    is_between: bool,
}

impl ForwardedStream {
    /// The stream, until `drain` is cancelled.
    pub fn new(body: ForwardedBody, drain: CancellationToken) -> Self {
        Self {
            body,
            drained: Box::pin(drain.cancelled_owned()),
            is_between: true,
        }
    }
}

impl fmt::Debug for ForwardedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedStream").finish_non_exhaustive()
    }
}

impl http_body::Body for ForwardedStream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        use std::future::Future as _;
        let this = &mut *self;
        match this.body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                {
                    this.is_between = data.ends_with(b"\n\n");
                }
                Poll::Ready(frame)
            }
            Poll::Pending if this.is_between && this.drained.as_mut().poll(cx).is_ready() => {
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
