//! A stream between two replicas that both sides send on at the same time.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use weir_http2_client::Http2Response;

/// The side of a stream that sends. Bytes that do not fit the window wait.
pub(crate) struct StreamSender {
    stream: SendStream<Bytes>,
    waiting: VecDeque<Bytes>,
    /// True once the other side takes no more.
    is_over: bool,
}

impl StreamSender {
    pub(crate) fn new(stream: SendStream<Bytes>) -> Self {
        Self {
            stream,
            waiting: VecDeque::new(),
            is_over: false,
        }
    }

    /// Queues bytes. They go out with the next polls.
    pub(crate) fn send(&mut self, bytes: Bytes) {
        if !bytes.is_empty() && !self.is_over {
            self.waiting.push_back(bytes);
        }
    }

    /// Sends as much as the window lets through. The task is woken when more fits.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) {
        while let Some(bytes) = self.waiting.front_mut() {
            if self.stream.capacity() == 0 {
                self.stream.reserve_capacity(bytes.len());
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return self.end(),
                    Poll::Pending => return,
                }
            }
            let room = self.stream.capacity().min(bytes.len());
            let part = bytes.split_to(room);
            if bytes.is_empty() {
                self.waiting.pop_front();
            }
            if !part.is_empty() && self.stream.send_data(part, false).is_err() {
                return self.end();
            }
        }
    }

    /// The answer reports the reason.
    fn end(&mut self) {
        self.is_over = true;
        self.waiting.clear();
    }
}

/// Polls for the next bytes, which are not empty; absent after the last. Bytes that are returned open
/// the flow-control window again.
pub(crate) fn poll_received(
    answer: &mut Http2Response,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, h2::Error>>> {
    loop {
        match ready!(answer.poll_data(cx)) {
            // The frame that ends a stream may be empty.
            Some(Ok(data)) if data.is_empty() => {}
            next => return Poll::Ready(next),
        }
    }
}

/// A stream to another replica. Dropping it resets the stream.
pub struct PeerStream {
    sending: StreamSender,
    receiving: Http2Response,
}

impl PeerStream {
    pub(crate) fn new(sending: StreamSender, receiving: Http2Response) -> Self {
        Self { sending, receiving }
    }

    /// Sends bytes, in order, while the stream is polled. The caller bounds them.
    pub fn send(&mut self, bytes: Bytes) {
        self.sending.send(bytes);
    }

    /// Polls for the next bytes of the other replica; absent after its last. Sends meanwhile.
    ///
    /// # Errors
    /// The stream was reset, or the connection is lost.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, String>>> {
        self.sending.poll_send(cx);
        let received = ready!(poll_received(&mut self.receiving, cx));
        Poll::Ready(received.map(|data| data.map_err(|error| error.to_string())))
    }
}

impl fmt::Debug for PeerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerStream").finish_non_exhaustive()
    }
}
