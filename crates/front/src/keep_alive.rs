//! Keep-alive of streams that wait. A comment at intervals detects dead connections. The stream
//! ends when its credentials end or an operator blocks its owner. Streams of calls do not use it:
//! they end with the call.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use tokio::time::{Duration, Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_core::Principal;
use weir_core::port::Clock;
use weir_layers::request::request_context::HttpRequestContext;
use weir_session::StreamRegistration;
use weir_wire::sse;

/// The next comment of a waiting stream, and its latest end.
pub(crate) struct KeepAlive {
    /// The end of the credentials it was opened with. Checked whenever the stream wakes: at the
    /// latest with the next comment.
    expires: Option<SystemTime>,
    clock: Arc<dyn Clock>,
    comment: Pin<Box<Sleep>>,
    every: Duration,
    enrolled: StreamRegistration,
    /// Fires when an operator ends the stream.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when its connection gets GOAWAY: HTTP/2 alone.
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    is_closing: bool,
}

impl KeepAlive {
    /// The keep-alive of a stream of this principal, as long as its credentials are valid. `kind`:
    /// see [`crate::StreamSeen`].
    pub(crate) fn new(
        context: &HttpRequestContext,
        principal: &Principal,
        kind: &'static str,
    ) -> Self {
        let mut byte = [0];
        context.shared.ports.random.fill(&mut byte);
        let every = with_jitter(context.limits().keep_alive, byte[0]);
        let comment = Box::pin(sleep_until(Instant::now() + every));
        let enrolled = context
            .shared
            .streams
            .registry
            .register(principal, &context.endpoint, kind);
        // Blocking a principal ends the streams that are registered by then. So a stream registers
        // first and checks the block after that: no stream slips in between.
        if context
            .shared
            .ports
            .authorizer
            .may_enter(principal, &context.endpoint)
            .is_err()
        {
            enrolled.end.cancel();
        }
        let ended = Box::pin(enrolled.end.clone().cancelled_owned());
        let (expires, clock) = (principal.expires(), context.shared.ports.clock.clone());
        let connection = context.peer().http2.as_ref();
        let closing = connection.map(|http2| Box::pin(http2.closing().clone().cancelled_owned()));
        Self {
            expires,
            clock,
            comment,
            every,
            enrolled,
            ended,
            closing,
            is_closing: false,
        }
    }

    /// True once the credentials ended, an operator ended the stream, or its connection got GOAWAY.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_closing
            || self.enrolled.end.is_cancelled()
            || self
                .expires
                .is_some_and(|expires| expires <= self.clock.wall())
    }

    /// Ready each time a comment is due, when an operator ends the stream, and when its connection
    /// gets GOAWAY.
    pub(crate) fn poll_due(&mut self, cx: &mut Task<'_>) -> Poll<()> {
        self.is_closing |= self
            .closing
            .as_mut()
            .is_some_and(|closing| closing.as_mut().poll(cx).is_ready());
        if self.is_closing {
            return Poll::Ready(());
        }
        if self.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let due = self.comment.as_mut().poll(cx);
        if due.is_ready() {
            self.comment.as_mut().reset(Instant::now() + self.every);
        }
        due
    }
}

/// A keep-alive comment, encoded.
pub(crate) fn comment() -> Bytes {
    let mut out = BytesMut::new();
    sse::write_comment(&mut out, "");
    out.freeze()
}

/// The time plus or minus a fifth, so that streams opened together do not wake together.
fn with_jitter(time: Duration, luck: u8) -> Duration {
    time.mul_f64(0.8 + 0.4 * f64::from(luck) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves D22.
    #[test]
    fn keep_alives_are_a_fifth_apart_either_way() {
        let time = Duration::from_secs(15);
        assert_eq!(
            (with_jitter(time, 0), with_jitter(time, 255)),
            (Duration::from_secs(12), Duration::from_secs(18))
        );
        assert!((0..=u8::MAX).is_sorted_by_key(|luck| with_jitter(time, luck)));
    }
}
