//! A stream of frames to the replica that runs an upstream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use http::HeaderMap;
use weir_cluster::{PeerForwarder, PeerStream};
use weir_core::names::UpstreamId;
use weir_listen::ForwardError;

use crate::frame::{Frame, take_frame};
use crate::lease_view::LeaseOwner;
use crate::stream_head::stream_headers;

/// A stream of frames, on the side of the replica that has the client.
pub(crate) struct FrameStream {
    stream: PeerStream,
    held: BytesMut,
    /// The most bytes of a frame.
    most: usize,
    /// True once the replica has ended the stream in order.
    has_ended: bool,
}

/// The reason that a stream was not opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The request did not run.
    NotRun(String),
    /// The request may have run.
    Lost(String),
}

/// The stream ended before the request did: it may have run. The text is for operators.
#[derive(Debug)]
pub(crate) struct StreamLost(pub(crate) String);

/// The way to the replicas that run upstreams.
#[derive(Clone, Debug)]
pub(crate) struct OwnerClient {
    pub(crate) forwarder: Arc<PeerForwarder>,
    pub(crate) upstream: UpstreamId,
    /// The most bytes of a frame.
    pub(crate) most: usize,
}

impl OwnerClient {
    /// Opens a stream that begins with a request.
    pub(crate) async fn open(
        &self,
        owner: &LeaseOwner,
        request: &Frame,
    ) -> Result<FrameStream, OpenError> {
        let headers: HeaderMap = stream_headers(&self.upstream, owner.epoch);
        let opened = self
            .forwarder
            .open_stream(&owner.replica, headers, request.encode());
        match opened.await {
            Ok((_, stream)) => Ok(FrameStream {
                stream,
                held: BytesMut::new(),
                most: self.most,
                has_ended: false,
            }),
            Err(ForwardError::Lost(cause)) => Err(OpenError::Lost(cause)),
            Err(error @ (ForwardError::NotSent(_) | ForwardError::NotOwner(_))) => {
                Err(OpenError::NotRun(error.to_string()))
            }
        }
    }
}

impl FrameStream {
    /// Sends a frame while the stream is polled.
    pub(crate) fn send(&mut self, frame: &Frame) {
        self.stream.send(frame.encode());
    }

    /// True once the replica has ended the stream in order.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Polls for the next frame.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, StreamLost>> {
        loop {
            match take_frame(&mut self.held, self.most) {
                Ok(Some(frame)) => return Poll::Ready(Ok(frame)),
                Ok(None) => {}
                Err(_) => return lost("invalid message of the replica"),
            }
            match ready!(self.stream.poll_receive(cx)) {
                Some(Ok(bytes)) if self.held.is_empty() => self.held = bytes.into(),
                Some(Ok(bytes)) => self.held.extend_from_slice(&bytes),
                Some(Err(cause)) => return lost(&cause),
                None => {
                    self.has_ended = true;
                    return lost("the replica ended the stream");
                }
            }
        }
    }

    /// Waits for the next frame. Cancel safe.
    pub(crate) async fn next_frame(&mut self) -> Result<Frame, StreamLost> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }
}

fn lost(cause: &str) -> Poll<Result<Frame, StreamLost>> {
    Poll::Ready(Err(StreamLost(cause.to_owned())))
}
