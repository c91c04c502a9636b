//! One HTTP/1.1 connection: a request and the head of its response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;
use tokio_util::io::{poll_read_buf, poll_write_buf};
use weir_core::budget::DescriptorPermit;
use weir_http1::{OutgoingRequest, ResponseHead, read_response_head, write_request_head};

use crate::byte_stream::ByteStream;
use crate::http_error::UpstreamHttpError;

/// The bytes that are read at once: usually a whole response.
const READ_SIZE: usize = 8 << 10;
/// The bytes that are read at once if more than that comes.
const LARGE_READ_SIZE: usize = 64 << 10;
/// The time after a response in which the runtime's last poll decides if a connection is quiet, and
/// not the socket. The next request was read in a poll of the same runtime, so little can have come
/// since. A server that sends more than its response does so in the same moment or late.
pub(super) const FRESH_POLL: Duration = Duration::from_micros(100);

/// An HTTP/1.1 connection, which carries one request at a time.
#[derive(Debug)]
pub(super) struct Http1Connection {
    stream: ByteStream,
    /// Bytes read from the connection and not parsed yet.
    pub(super) unread: BytesMut,
    /// The number of bytes to read next.
    room: usize,
    /// True if an earlier request used this connection.
    pub(super) is_kept: bool,
    _descriptor: DescriptorPermit,
}

impl Http1Connection {
    pub(super) fn new(stream: ByteStream, descriptor: DescriptorPermit) -> Self {
        Self {
            stream,
            unread: BytesMut::new(),
            room: READ_SIZE,
            is_kept: false,
            _descriptor: descriptor,
        }
    }

    /// True if the server has neither closed the connection nor sent data since its last response,
    /// `rest` ago.
    pub(super) fn is_quiet(&mut self, rest: Duration) -> bool {
        if rest < FRESH_POLL {
            self.stream.is_quiet_since_last_poll()
        } else {
            self.stream.is_quiet()
        }
    }

    /// Waits until the server closes the connection or sends data. Cancel safe.
    pub(super) async fn wait_until_disturbed(&mut self) {
        self.stream.wait_until_disturbed().await;
    }

    /// Returns the connection, ready for another request. Absent if the server sent more than its
    /// response, because that would be read as the next one.
    pub(super) fn into_idle(mut self) -> Option<Self> {
        let is_clean = self.unread.is_empty();
        if self.unread.capacity() > READ_SIZE {
            // Frees the memory that only a long response needed.
            self.unread = BytesMut::new();
        }
        self.is_kept = true;
        is_clean.then_some(self)
    }

    /// Writes a request and reads the head of its response. Returns the connection with the head,
    /// which persists only if all of the request was written.
    pub(super) async fn send_request(
        mut self,
        ask: OutgoingRequest<'_>,
    ) -> Result<(Self, ResponseHead), UpstreamHttpError> {
        let head = write_request_head(ask);
        let mut out = RequestWriter {
            bytes: head.chain(&ask.body[..]),
            is_begun: false,
            lost: None,
            interim: 0,
        };
        let mut head = std::future::poll_fn(|cx| self.poll_send_request(cx, &mut out)).await?;
        // A server that responds before it has read all would read the rest as another request.
        head.persists &= out.lost.is_none() && !out.bytes.has_remaining();
        Ok((self, head))
    }

    fn poll_send_request<B: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut RequestWriter<B>,
    ) -> Poll<Result<ResponseHead, UpstreamHttpError>> {
        if let Poll::Ready(Err(error)) = self.poll_write(cx, out) {
            if !out.is_begun {
                return Poll::Ready(Err(UpstreamHttpError::NotSent(error)));
            }
            // A server that closes early may have sent the reason.
            out.lost = Some(error);
        }
        loop {
            if let Some(head) = read_response_head(&mut self.unread, &mut out.interim)? {
                return Poll::Ready(Ok(head));
            }
            if let Err(error) = ready!(self.poll_read(cx)) {
                return Poll::Ready(Err(out
                    .lost
                    .take()
                    .map_or(error, UpstreamHttpError::Broken)));
            }
        }
    }

    fn poll_write<B: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut RequestWriter<B>,
    ) -> Poll<io::Result<()>> {
        if out.lost.is_some() {
            return Poll::Ready(Ok(()));
        }
        while out.bytes.has_remaining() {
            if ready!(poll_write_buf(
                Pin::new(&mut self.stream),
                cx,
                &mut out.bytes
            ))? == 0
            {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            out.is_begun = true;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Reads more bytes into `unread`.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UpstreamHttpError>> {
        self.unread.reserve(self.room);
        let space = self.unread.capacity() - self.unread.len();
        let read = ready!(poll_read_buf(
            Pin::new(&mut self.stream),
            cx,
            &mut self.unread
        ))
        .map_err(UpstreamHttpError::Broken)?;
        self.room = if read == space {
            LARGE_READ_SIZE
        } else {
            READ_SIZE
        };
        Poll::Ready(if read == 0 {
            Err(UpstreamHttpError::Closed)
        } else {
            Ok(())
        })
    }
}

#[cfg(test)]
impl Http1Connection {
    /// Waits until the connection is readable.
    pub(super) async fn readable(&self) {
        let ByteStream::Plain(stream) = &self.stream else {
            return;
        };
        stream.readable().await.unwrap_or_default();
    }
}

/// A request that is being written.
struct RequestWriter<B> {
    bytes: B,
    is_begun: bool,
    /// The error of the write, if the rest cannot be written.
    lost: Option<io::Error>,
    /// Bytes of interim responses that were read.
    interim: usize,
}
