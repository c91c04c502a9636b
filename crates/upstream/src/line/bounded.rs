//! Connections to a server that may not send without end what brings nothing: interim answers, pings, settings, empty frames. The
//! libraries read them for as long as they come, which takes a processor and never answers a request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Frames of HTTP/2 that bring nothing: how many may come at once, how many more each second, and how many more for each frame of a
/// request. A good server sends some for each request (its answer's head, windows, a reset) and pings now and then.
const IDLE_FRAMES: f64 = 1000.0;
const IDLE_FRAMES_A_SECOND: f64 = 100.0;
const IDLE_FRAMES_A_REQUEST: f64 = 8.0;
/// Bytes that may come on a connection of HTTP/1.1 after a request, where nothing larger than a document is asked for.
const DOCUMENT: usize = 2 << 20;

/// The length of what a client writes before its first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// A connection that ends where too much comes that brings nothing.
#[derive(Debug)]
pub(crate) struct Bounded<S> {
    inner: S,
    bound: Bound,
}

#[derive(Debug)]
enum Bound {
    Frames(Box<Frames>),
    /// Bytes read since the last request.
    Document(usize),
}

impl<S> Bounded<S> {
    /// A connection of HTTP/2.
    pub(crate) fn frames(inner: S) -> Self {
        Self { inner, bound: Bound::Frames(Box::new(Frames::new())) }
    }

    /// A connection of HTTP/1.1 that carries documents.
    pub(crate) fn documents(inner: S) -> Self {
        Self { inner, bound: Bound::Document(0) }
    }
}

impl Bound {
    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Frames(frames) => frames.received(bytes),
            Self::Document(read) => {
                *read += bytes.len();
                if *read > DOCUMENT { Err(io::Error::other("the server sends more than a document")) } else { Ok(()) }
            }
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Frames(frames) => frames.sent(bytes),
            Self::Document(read) => *read = 0,
        }
    }
}

/// The frames of both directions.
#[derive(Debug)]
struct Frames {
    received: FrameHeads,
    sent: FrameHeads,
    left: f64,
    /// When `left` was last counted.
    counted: Instant,
}

impl Frames {
    fn new() -> Self {
        let (received, sent) = (FrameHeads::new(0), FrameHeads::new(PREFACE));
        Self { received, sent, left: IDLE_FRAMES, counted: Instant::now() }
    }

    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut idle = 0.0;
        self.received.feed(bytes, |frame| idle += f64::from(u8::from(frame.is_idle())));
        if idle > 0.0 {
            let now = Instant::now();
            let more = now.duration_since(std::mem::replace(&mut self.counted, now));
            self.left = (self.left + per_second(more)).min(IDLE_FRAMES) - idle;
        }
        if self.left < 0.0 { Err(io::Error::other("the server floods the connection with frames")) } else { Ok(()) }
    }

    fn sent(&mut self, bytes: &[u8]) {
        let mut own = 0.0;
        self.sent.feed(bytes, |frame| own += f64::from(u8::from(matches!(frame.kind, DATA | HEADERS))));
        self.left = (self.left + own * IDLE_FRAMES_A_REQUEST).min(IDLE_FRAMES);
    }
}

fn per_second(time: Duration) -> f64 {
    time.as_secs_f64() * IDLE_FRAMES_A_SECOND
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHead {
    kind: u8,
    flags: u8,
    /// Its payload without padding.
    length: usize,
}

impl FrameHead {
    /// True if it asks for work and brings nothing. The library bounds small frames of data.
    fn is_idle(self) -> bool {
        self.kind != DATA || self.length == 0 && self.flags & END_STREAM == 0
    }
}

/// Follows the frames of one direction, however they are cut.
#[derive(Debug)]
struct FrameHeads {
    /// Bytes before the next frame's head.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
    /// A frame of data whose first byte will say how much of it is padding.
    padded: Option<FrameHead>,
}

impl FrameHeads {
    fn new(skip: usize) -> Self {
        Self { skip, head: [0; HEAD], filled: 0, padded: None }
    }

    fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(FrameHead)) {
        while let Some(first) = bytes.first() {
            if let Some(mut frame) = self.padded.take() {
                frame.length = frame.length.saturating_sub(1 + usize::from(*first));
                seen(frame);
            }
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let part = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + part].copy_from_slice(&bytes[..part]);
            self.filled += part;
            bytes = &bytes[part..];
            if self.filled == HEAD {
                self.begin(&mut seen);
            }
        }
    }

    fn begin(&mut self, seen: &mut impl FnMut(FrameHead)) {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        (self.skip, self.filled) = (length, 0);
        let frame = FrameHead { kind, flags, length };
        if kind == DATA && flags & PADDED != 0 && length > 0 {
            self.padded = Some(frame);
        } else {
            seen(frame);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        Poll::Ready(self.bound.received(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, data))?;
        self.bound.sent(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, data))?;
        let mut left = written;
        for slice in data {
            let part = left.min(slice.len());
            self.bound.sent(&slice[..part]);
            left -= part;
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

impl<S: Connection> Connection for Bounded<S> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_testkit::h2::{PING, SETTINGS, frame};

    use super::*;

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
        let head = |kind, flags, length| FrameHead { kind, flags, length };
        let expected = [
            head(SETTINGS, 0, 6),
            head(DATA, PADDED, 4),
            head(DATA, PADDED, 0),
            head(DATA, PADDED, 0),
            head(DATA, PADDED, 0),
            head(DATA, END_STREAM, 0),
            head(HEADERS, 4, 1),
        ];
        for size in 1..=bytes.len() {
            let (mut heads, mut all) = (FrameHeads::new(PREFACE), Vec::new());
            for part in bytes.chunks(size) {
                heads.feed(part, |frame| all.push(frame));
            }
            assert_eq!(all, expected, "in parts of {size}");
        }
        let idle: Vec<bool> = expected.iter().map(|frame| frame.is_idle()).collect();
        assert_eq!(idle, [true, false, true, true, true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_bring_nothing_are_bounded_and_those_of_a_busy_server_are_not() {
        let ping = frame(PING, 0, 0, b"12345678");
        let mut idle = Frames::new();
        for _ in 0..IDLE_FRAMES as usize {
            idle.received(&ping).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..IDLE_FRAMES_A_SECOND as usize {
            idle.received(&ping).unwrap();
        }
        assert!(idle.received(&ping).is_err());
        let mut busy = Frames::new();
        busy.sent(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let answer = [frame(HEADERS, 4, 1, b"\x88"), frame(DATA, 0, 1, b"{}"), frame(DATA, 1, 1, b"")].concat();
        for _ in 0..100_000 {
            busy.sent(&frame(HEADERS, 5, 1, b"\x83"));
            busy.received(&answer).unwrap();
            busy.received(&ping).unwrap();
        }
    }

    #[test]
    fn a_document_is_bounded_and_the_next_request_begins_anew() {
        let mut bound = Bound::Document(0);
        let block = vec![0; 64 << 10];
        for _ in 0..3 {
            for _ in 0..DOCUMENT / block.len() {
                bound.received(&block).unwrap();
            }
            bound.sent(b"GET");
        }
        bound.received(&vec![0; DOCUMENT]).unwrap();
        assert!(bound.received(b"x").is_err());
    }
}
