//! A stream from another process. It ends with this process between two events, so that its client
//! gets a whole last event, or opens the next stream elsewhere.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_listen::{BodyError, ForwardedBody};

/// A stream from another process.
pub struct ForwardedStream {
    body: ForwardedBody,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The event that is written at the end, in the place of the lost answer to a call.
    last_event: Option<Bytes>,
    /// True between two events.
    is_between: bool,
    is_over: bool,
}

impl ForwardedStream {
    /// The stream, until `end` is cancelled.
    pub fn new(body: ForwardedBody, end: CancellationToken) -> Self {
        Self {
            body,
            end: Box::pin(end.cancelled_owned()),
            last_event: None,
            is_between: true,
            is_over: false,
        }
    }

    /// The stream of a call, with the event in the place of a lost answer. A stream whose events
    /// have ids has none: its client resumes it elsewhere, and gets the answer.
    #[must_use]
    pub fn with_last_event(self, last_event: Option<Bytes>) -> Self {
        Self { last_event, ..self }
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
        if this.is_over {
            return Poll::Ready(None);
        }
        match this.body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                {
                    if this.is_between && data.starts_with(b"id:") {
                        this.last_event = None;
                    }
                    this.is_between = data.ends_with(b"\n\n");
                }
                Poll::Ready(frame)
            }
            Poll::Pending if this.is_between && this.end.as_mut().poll(cx).is_ready() => {
                this.is_over = true;
                let last = this.last_event.take();
                Poll::Ready(last.map(|event| Ok(Frame::data(event))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;

    use super::*;

    /// A stream that stays open after its pieces.
    struct OpenStream(VecDeque<&'static str>);

    impl http_body::Body for OpenStream {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            match self.0.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                None => Poll::Pending,
            }
        }
    }

    /// The pieces of a forwarded call's stream that is cut at its last piece.
    async fn cut_after(pieces: &[&'static str]) -> Vec<Bytes> {
        let end = CancellationToken::new();
        end.cancel();
        let body = Box::pin(OpenStream(pieces.iter().copied().collect()));
        let last = Some(Bytes::from_static(b"data: lost\n\n"));
        let mut stream = ForwardedStream::new(body, end).with_last_event(last);
        let mut seen = Vec::new();
        while let Some(frame) = stream.frame().await {
            seen.push(frame.unwrap().into_data().unwrap());
        }
        seen
    }

    #[tokio::test]
    async fn cut_stream_of_a_call_ends_with_the_lost_answer_unless_it_can_be_resumed() {
        let progress = "data: progress\n\n";
        assert_eq!(cut_after(&[":\n\n", progress]).await.len(), 3);
        assert_eq!(
            cut_after(&[]).await,
            [Bytes::from_static(b"data: lost\n\n")]
        );
        assert_eq!(cut_after(&["id: 1\ndata: \n\n", ":\n\n"]).await.len(), 2);
    }
}
