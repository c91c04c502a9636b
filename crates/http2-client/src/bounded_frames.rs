//! HTTP/2 connections with a bound on traffic without content: interim responses, pings, settings,
//! empty frames. The library reads them for as long as they come, which takes a processor and never
//! answers a request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use weir_wire::http2_frames::{
    DATA, END_STREAM, FrameParser, FramePiece, HEADERS, IdleFrames, PREFACE, written_parts,
};

use crate::inbound_traffic::{EmptyDataFilter, InboundTraffic};

/// The idle frames that may come for each frame of a request. A good server sends some for each
/// request (its response's head, windows, a reset) and pings now and then.
const IDLE_FRAMES_PER_REQUEST: u32 = 8;
/// The window of a connection at its beginning (RFC 9113, section 6.9.2).
const INITIAL_WINDOW: i64 = 65_535;

/// The byte stream of an HTTP/2 connection, which ends if too many frames come without content.
#[derive(Debug)]
pub struct BoundedFrames<S> {
    inner: S,
    frames: Box<FrameCounter>,
}

impl<S> BoundedFrames<S> {
    /// Bounds a connection of another library.
    pub fn new(inner: S) -> Self {
        Self::counted(inner, None)
    }

    /// Bounds a connection whose driver gathers small frames.
    pub(crate) fn gathered(inner: S, traffic: Arc<InboundTraffic>) -> Self {
        Self::counted(inner, Some(traffic))
    }

    fn counted(inner: S, traffic: Option<Arc<InboundTraffic>>) -> Self {
        Self {
            inner,
            frames: Box::new(FrameCounter::new(traffic)),
        }
    }

    /// Returns the stream below.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

/// The frames of both directions.
#[derive(Debug)]
struct FrameCounter {
    received: FrameParser,
    sent: FrameParser,
    idle: IdleFrames,
    empty_data: EmptyDataFilter,
    /// What the server has left of the connection's window.
    window_left: i64,
    /// Absent if the connection has no driver that gathers.
    traffic: Option<Arc<InboundTraffic>>,
}

impl FrameCounter {
    fn new(traffic: Option<Arc<InboundTraffic>>) -> Self {
        let (received, sent) = (FrameParser::new(0), FrameParser::new(PREFACE));
        Self {
            received,
            sent,
            idle: IdleFrames::new(Instant::now().into_std()),
            empty_data: EmptyDataFilter::default(),
            window_left: INITIAL_WINDOW,
            traffic,
        }
    }

    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self
            .traffic
            .as_ref()
            .is_some_and(|traffic| traffic.is_to_gather())
        {
            // The driver gathers after this poll.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut filter = std::mem::take(&mut self.empty_data);
        let read = filter.poll_read(inner, cx, buffer, |bytes| self.received(bytes));
        self.empty_data = filter;
        read
    }

    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let traffic = self.traffic.as_deref();
        if let Some(traffic) = traffic {
            traffic.received();
        }
        let (mut idle, mut length) = (0, 0);
        self.received.feed(bytes, |seen| {
            idle += u32::from(is_idle(seen));
            if let (Some(traffic), FramePiece::Head(frame)) = (traffic, seen)
                && frame.kind == DATA
            {
                length += frame.length;
                traffic.received_data(frame);
            }
        });
        if length > 0
            && let Some(traffic) = traffic
        {
            self.window_left -= i64::try_from(length).unwrap_or(i64::MAX);
            traffic.set_window_left(self.window_left);
        }
        if idle == 0 || self.idle.take(idle, Instant::now().into_std()) {
            return Ok(());
        }
        Err(io::Error::other(
            "the server floods the connection with frames",
        ))
    }

    fn sent(&mut self, bytes: &[u8]) {
        let (mut own, mut window) = (0, 0);
        self.sent.feed(bytes, |seen| match seen {
            FramePiece::Head(frame) if matches!(frame.kind, DATA | HEADERS) => own += 1,
            FramePiece::Window(0, more) => window += i64::from(more),
            FramePiece::Head(_) | FramePiece::Setting(..) | FramePiece::Window(..) => {}
        });
        self.idle
            .add(u32::saturating_mul(own, IDLE_FRAMES_PER_REQUEST));
        if window > 0
            && let Some(traffic) = &self.traffic
        {
            self.window_left += window;
            traffic.set_window_left(self.window_left);
        }
    }
}

/// True for a frame that costs work and has no content.
fn is_idle(seen: FramePiece) -> bool {
    let FramePiece::Head(frame) = seen else {
        return false;
    };
    frame.kind != DATA || frame.length == frame.padding && frame.flags & END_STREAM == 0
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedFrames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.frames.poll_read(&mut this.inner, cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedFrames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, data))?;
        self.frames.sent(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, data))?;
        for part in written_parts(data, written) {
            self.frames.sent(part);
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use weir_testkit::h2_client::{PING, SETTINGS, frame};
    use weir_wire::http2_frames::{IDLE_FRAMES, IDLE_FRAMES_A_SECOND};

    use super::*;

    const PADDED: u8 = 8;

    #[test]
    fn frames_are_seen_however_they_are_cut() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, b"123456"));
        bytes.extend(frame(DATA, PADDED, 1, b"\x02data.."));
        bytes.extend(frame(DATA, PADDED, 1, b"\x01."));
        bytes.extend(frame(DATA, PADDED, 1, b""));
        bytes.extend(frame(DATA, PADDED, 1, b"\xff"));
        bytes.extend(frame(DATA, END_STREAM, 1, b""));
        bytes.extend(frame(HEADERS, 4, 3, b"\x88"));
        let expected = [
            (SETTINGS, 0, 6),
            (DATA, PADDED, 4),
            (DATA, PADDED, 0),
            (DATA, PADDED, 0),
            (DATA, PADDED, 0),
            (DATA, END_STREAM, 0),
            (HEADERS, 4, 1),
        ];
        let mut frames = Vec::new();
        for size in 1..=bytes.len() {
            let mut parser = FrameParser::new(PREFACE);
            frames.clear();
            for part in bytes.chunks(size) {
                parser.feed(part, |seen| {
                    frames.extend(matches!(seen, FramePiece::Head(_)).then_some(seen))
                });
            }
            let all: Vec<_> = frames
                .iter()
                .filter_map(|seen| match seen {
                    FramePiece::Head(frame) => {
                        Some((frame.kind, frame.flags, frame.length - frame.padding))
                    }
                    FramePiece::Setting(..) | FramePiece::Window(..) => None,
                })
                .collect();
            assert_eq!(all, expected, "in parts of {size}");
        }
        let idle: Vec<bool> = frames.iter().map(|seen| is_idle(*seen)).collect();
        assert_eq!(idle, [true, false, true, true, true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_bring_nothing_are_bounded_and_those_of_a_busy_server_are_not() {
        let ping = frame(PING, 0, 0, b"12345678");
        let mut idle = FrameCounter::new(None);
        for _ in 0..IDLE_FRAMES {
            idle.received(&ping).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..IDLE_FRAMES_A_SECOND {
            idle.received(&ping).unwrap();
        }
        assert!(idle.received(&ping).is_err());
        let mut busy = FrameCounter::new(None);
        busy.sent(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let answer = [
            frame(HEADERS, 4, 1, b"\x88"),
            frame(DATA, 0, 1, b"{}"),
            frame(DATA, 1, 1, b""),
        ]
        .concat();
        for _ in 0..100_000 {
            busy.sent(&frame(HEADERS, 5, 1, b"\x83"));
            busy.received(&answer).unwrap();
            busy.received(&ping).unwrap();
        }
    }
}
