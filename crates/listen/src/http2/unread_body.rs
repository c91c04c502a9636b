//! The rest of a refused request's body: it is discarded for a while after the answer, so that no
//! reset of the stream comes with the answer. Many clients lose an answer to such a reset, although
//! it has no error (RFC 9113, section 8.1).

use std::future::poll_fn;

use h2::RecvStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::guarded_stream::{DISCARD_TIME, LINGERING_BYTES, MAX_LINGERING};

/// Discards the body if it was given up unread, and its answer was sent, within the bounds of a
/// connection of HTTP/1.1 that is closed. Dropping the stream before its end resets it.
pub(super) async fn discard(is_sent: bool, mut unread: oneshot::Receiver<RecvStream>) {
    let Some(mut stream) = unread.try_recv().ok().filter(|_| is_sent) else {
        return;
    };
    let (mut bytes, until) = (LINGERING_BYTES, Instant::now() + MAX_LINGERING);
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
