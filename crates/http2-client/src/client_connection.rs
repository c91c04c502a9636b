//! A connection, driven by the task of its owner.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{PingPong, Reason};
use tokio::io::{AsyncRead, AsyncWrite};
use weir_core::budget::{ByteBudget, ByteReservation};

use crate::bounded_frames::BoundedFrames;
use crate::inbound_traffic::{InboundTraffic, SMALL_FRAMES_BUDGET};
use crate::response::OpenResponses;

/// The window of each stream: the most that a slow reader takes of its connection's window.
pub const STREAM_WINDOW: u32 = 256 << 10;
/// The smallest window of a connection (RFC 9113, 6.9.2).
const MIN_WINDOW: u32 = 65_535;
/// The bytes by which the window of a connection grows at a time.
const WINDOW_STEP: u32 = 4 << 20;

/// The window of a connection: the most that weir may have to hold of unread responses, so its size
/// depends on the free memory. It grows while slow readers hold much of it, so that they do not stop
/// the other requests.
pub struct ReceiveWindow {
    size: u32,
    most: u32,
    budget: ByteBudget,
    /// The shares of the budget. A server may use its window until the connection ends.
    held: Vec<ByteReservation>,
}

impl ReceiveWindow {
    /// Reserves a window of `first` bytes, or a smaller one if memory does not allow it. It grows up
    /// to `most`.
    #[must_use]
    pub fn reserve(budget: &ByteBudget, first: u32, most: u32) -> Self {
        let share = budget.reserve_share(first.saturating_sub(MIN_WINDOW) as usize);
        Self {
            size: u32::try_from(share.bytes()).map_or(first, |more| MIN_WINDOW + more),
            most,
            budget: budget.clone(),
            held: vec![share],
        }
    }

    /// Makes the window larger, and returns its new size. Absent if it is as large as it may be, or
    /// if memory does not allow the whole step.
    fn grow(&mut self) -> Option<u32> {
        let step = WINDOW_STEP.min(self.most.saturating_sub(self.size));
        if step == 0 {
            return None;
        }
        let more = self.budget.reserve_share(step as usize);
        if more.bytes() < step as usize {
            return None;
        }
        self.held.push(more);
        self.size += step;
        Some(self.size)
    }
}

/// A connection. It is a future, which drives it to its end.
pub struct ClientConnection<S> {
    connection: Connection<BoundedFrames<S>, Bytes>,
    responses: Arc<OpenResponses>,
    window: ReceiveWindow,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    /// Begins HTTP/2 on a stream, with the settings of `builder` and this window.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn begin(
        stream: S,
        builder: &mut Builder,
        window: ReceiveWindow,
    ) -> Result<(SendRequest<Bytes>, Self), h2::Error> {
        let traffic = Arc::new(InboundTraffic::new(window.size));
        let (sender, connection) = builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW.min(window.size))
            .initial_connection_window_size(window.size)
            .data_frame_budget(SMALL_FRAMES_BUDGET)
            // Late frames of cancelled requests are no error of the server.
            .max_local_error_reset_streams(None)
            .handshake(BoundedFrames::gathered(stream, traffic.clone()))
            .await?;
        let begun = Self {
            connection,
            responses: Arc::new(OpenResponses::new(traffic)),
            window,
        };
        Ok((sender, begun))
    }

    /// Returns the responses of the connection.
    #[must_use]
    pub fn responses(&self) -> Arc<OpenResponses> {
        self.responses.clone()
    }

    /// Takes the handle for pings, which can be taken once.
    pub fn ping_pong(&mut self) -> Option<PingPong> {
        self.connection.ping_pong()
    }

    /// Returns the most streams that the server allows at once.
    #[must_use]
    pub fn max_concurrent_send_streams(&self) -> usize {
        self.connection.max_concurrent_send_streams()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for ClientConnection<S> {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.connection).poll(cx);
        this.responses.gather();
        if this.responses.is_crowded()
            && let Some(size) = this.window.grow()
        {
            this.connection.set_target_window_size(size);
            this.responses.set_window(size);
        }
        polled
    }
}

/// True for a failure that proves that the server did not process the request: REFUSED_STREAM, or a
/// GOAWAY below its stream (RFC 9113, 8.7). `h2` fails a stream with a GOAWAY of the server only
/// then.
#[must_use]
pub fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote()
        && (error.is_go_away()
            || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM))
}

impl fmt::Debug for ReceiveWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveWindow")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for ClientConnection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnection")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
