//! The rest of a refused request's body: it is discarded for a while after the answer, so that no
//! reset of the stream comes with the answer. Many clients lose an answer to such a reset, although
//! it has no error (RFC 9113, section 8.1).

use std::future::poll_fn;

use h2::RecvStream;
use http::{HeaderMap, header};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::super::guarded_stream::{DISCARD_TIME, DISCARDED_BYTES, MAX_LINGERING};
use super::super::request_body::UnreadBody;

/// The bounds of the part of a request's body that is discarded; those of a connection of HTTP/1.1
/// that is closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreadBodyBounds {
    /// The largest body that a request may have.
    most: usize,
    /// The length that the head states.
    declared: Option<usize>,
}

impl UnreadBodyBounds {
    /// Returns the bounds for a request with these headers.
    pub(super) fn of(headers: &HeaderMap, most: usize) -> Self {
        let declared = headers.get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        Self { most, declared }
    }

    /// The remaining bytes of an allowed body; 0 for a larger one.
    fn rest(self, read: usize) -> usize {
        match self.declared {
            Some(length) if length > self.most => 0,
            Some(length) => length.saturating_sub(read),
            None => self.most.saturating_sub(read),
        }
    }

    /// Discards the body if it was given up unread, and its answer was sent. Dropping the stream
    /// before its end resets it.
    pub(super) async fn discard(self, is_sent: bool, mut unread: oneshot::Receiver<UnreadBody>) {
        let Some(UnreadBody { stream, read }) = unread.try_recv().ok().filter(|_| is_sent) else {
            return;
        };
        let rest = self.rest(read);
        let time = if rest > 0 {
            MAX_LINGERING
        } else {
            DISCARD_TIME
        };
        let bytes = DISCARDED_BYTES.saturating_add(rest);
        discard_stream(stream, bytes, Instant::now() + time).await;
    }
}

/// Discards at most this much. A body that does not come is awaited for [`DISCARD_TIME`].
async fn discard_stream(mut stream: RecvStream, mut bytes: usize, until: Instant) {
    while !stream.is_end_stream() {
        let due = until.min(Instant::now() + DISCARD_TIME);
        let data = timeout_at(due, poll_fn(|cx| stream.poll_data(cx))).await;
        let Ok(Some(Ok(data))) = data else {
            return;
        };
        if data.len() > bytes {
            return;
        }
        bytes -= data.len();
        if stream.flow_control().release_capacity(data.len()).is_err() {
            return;
        }
    }
}
