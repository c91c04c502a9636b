//! The body of the stream of an HTTP+SSE connection.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_core::port::BoxFuture;
use weir_listen::OtherProcess;
use weir_session::StreamPermit;

use crate::handler::sse_transport::connection_session::SseConnectionGuard;
use crate::keep_alive::{self, KeepAlive};

/// The time until a client connects again to the process after this one, which accepts already.
pub(super) const SUCCESSOR_RETRY_MS: u64 = 100;

/// The body of the connection's stream.
pub(super) struct SseBody {
    first: Option<Bytes>,
    chunks: mpsc::Receiver<Bytes>,
    /// True between two events.
    between: bool,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when the drain began, or the credentials ended, and all messages are answered.
    drained: BoxFuture<'static, ()>,
    keep_alive: KeepAlive,
    is_ending: bool,
    is_over: bool,
    hold: SseConnectionGuard,
    _permit: StreamPermit,
}

impl SseBody {
    pub(super) fn new(
        first: String,
        chunks: mpsc::Receiver<Bytes>,
        hold: SseConnectionGuard,
        permit: StreamPermit,
        keep_alive: KeepAlive,
    ) -> Self {
        let drain = hold.context.shared().shutdown.drain().clone();
        let pending = hold.connection.pending.clone();
        let expired = hold.connection.expired.clone();
        let drained = async move {
            tokio::select! {
                () = drain.cancelled() => {}
                () = expired.cancelled() => {}
            }
            pending.close_when_none().await;
        };
        Self {
            first: Some(first.into()),
            chunks,
            between: true,
            over: Box::pin(hold.connection.closed.clone().cancelled_owned()),
            drained: Box::pin(drained),
            keep_alive,
            is_ending: false,
            is_over: false,
            hold,
            _permit: permit,
        }
    }

    /// Goes on with the credentials of a later message if those of the stream ended; without such
    /// ones the stream ends once all messages are answered.
    fn check_credentials(&mut self) {
        let connection = &self.hold.connection;
        if connection.expired.is_cancelled() || !self.keep_alive.has_no_credentials() {
            return;
        }
        if let Some(posted) = connection.posted.lock().take() {
            self.keep_alive.replace_credentials(posted);
        }
        if self.keep_alive.has_no_credentials() {
            connection.expire();
        }
    }

    /// The delay at the end of the stream, once: the process after this one accepts already.
    fn take_last_retry(&mut self) -> Option<Bytes> {
        let context = &self.hold.context;
        let successor = context.other_process(OtherProcess::Successor);
        let is_first = !std::mem::replace(&mut self.is_over, true);
        (is_first && self.between && successor.is_some()).then(successor_retry)
    }
}

/// A `retry` field for a client that is to connect to the process after this one.
fn successor_retry() -> Bytes {
    Bytes::from(format!("retry: {SUCCESSOR_RETRY_MS}\n\n"))
}

impl http_body::Body for SseBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(piece)) = this.chunks.poll_recv(cx) {
            this.between = piece.ends_with(b"\n\n");
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        loop {
            this.check_credentials();
            if !this.is_ending {
                this.is_ending = this.keep_alive.is_ended()
                    || this.drained.as_mut().poll(cx).is_ready()
                    || this.over.as_mut().poll(cx).is_ready();
            }
            if this.is_ending {
                this.hold.connection.closed.cancel();
                // The last answer may have come since the look above.
                return Poll::Ready(match this.chunks.poll_recv(cx) {
                    Poll::Ready(Some(piece)) => {
                        this.between = piece.ends_with(b"\n\n");
                        Some(Ok(Frame::data(piece)))
                    }
                    Poll::Ready(None) | Poll::Pending => {
                        this.take_last_retry().map(|retry| Ok(Frame::data(retry)))
                    }
                });
            }
            std::task::ready!(this.keep_alive.poll_due(cx));
            let is_answering = this.hold.connection.expired.is_cancelled();
            if this.between && (is_answering || !this.keep_alive.is_expired()) {
                return Poll::Ready(Some(Ok(Frame::data(keep_alive::comment()))));
            }
        }
    }
}
