//! A stream of frames from another replica, on the side of the replica that runs the upstream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame as BodyFrame, SizeHint};
use tokio::sync::mpsc;
use weir_core::port::BoxFuture;
use weir_listen::{BodyError, RequestBody};

use crate::frame::{Frame, take_frame};

/// The frames that wait for the window of the stream. A further one waits for its turn.
const MAX_WAITING_FRAMES: usize = 4;

/// The other replica has gone, or does not speak this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamGone;

/// The two directions of a stream.
pub(crate) struct OwnerStream {
    pub(crate) reader: FrameReader,
    pub(crate) writer: FrameWriter,
}

/// The frames of the other replica.
pub(crate) struct FrameReader {
    body: RequestBody,
    held: BytesMut,
    /// The most bytes of a frame.
    most: usize,
}

impl FrameReader {
    pub(crate) fn new(body: RequestBody, most: usize) -> Self {
        Self {
            body,
            held: BytesMut::new(),
            most,
        }
    }

    /// Sets the most bytes of a frame.
    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Waits for the next frame. Cancel safe.
    pub(crate) async fn next_frame(&mut self) -> Result<Frame, StreamGone> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, StreamGone>> {
        loop {
            match take_frame(&mut self.held, self.most) {
                Ok(Some(frame)) => return Poll::Ready(Ok(frame)),
                Ok(None) => {}
                Err(_) => return Poll::Ready(Err(StreamGone)),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if self.held.is_empty() => self.held = bytes.into(),
                    Ok(bytes) => self.held.extend_from_slice(&bytes),
                    // Trailers have nothing.
                    Err(_) => {}
                },
                Some(Err(_)) | None => return Poll::Ready(Err(StreamGone)),
            }
        }
    }
}

/// The way back to the other replica.
#[derive(Clone, Debug)]
pub(crate) struct FrameWriter(mpsc::Sender<Bytes>);

impl FrameWriter {
    /// Sends a frame, once there is room for it.
    pub(crate) async fn send(&self, frame: &Frame) -> Result<(), StreamGone> {
        self.0.send(frame.encode()).await.map_err(|_| StreamGone)
    }
}

/// The body of an answer: it drives the service of the stream, and carries its frames. Dropping it
/// ends the service.
pub(crate) struct ServedStream {
    /// Absent once it has ended.
    service: Option<BoxFuture<'static, ()>>,
    frames: mpsc::Receiver<Bytes>,
}

impl ServedStream {
    /// The body of the service that `serve` makes.
    pub(crate) fn new(serve: impl FnOnce(FrameWriter) -> BoxFuture<'static, ()>) -> Self {
        let (sender, frames) = mpsc::channel(MAX_WAITING_FRAMES);
        Self {
            service: Some(serve(FrameWriter(sender))),
            frames,
        }
    }
}

impl Body for ServedStream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, BodyError>>> {
        if let Some(service) = &mut self.service
            && service.as_mut().poll(cx).is_ready()
        {
            self.service = None;
        }
        // The sender ends with the service.
        let bytes = ready!(self.frames.poll_recv(cx));
        Poll::Ready(bytes.map(|bytes| Ok(BodyFrame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
