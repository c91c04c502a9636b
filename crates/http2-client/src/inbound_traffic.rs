//! The bytes that a server sends on an HTTP/2 connection, on their way to the library.
//!
//! The library ends a connection after a number of empty frames of data over its whole life, and
//! when too many small frames of data are unread, however many requests it carries. Here the first
//! are turned into frames that it ignores, and the second are counted, so that the connection can
//! take them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;
use weir_core::instant::millis;
use weir_wire::http2_frames::{DATA, END_STREAM, FrameHead, PADDED};

/// The size below which the library counts a frame of data as small.
const SMALL_FRAME: usize = 256;
/// What small frames lack of that size, summed, before the connection takes them.
const GATHER_AT: usize = 512 << 10;
/// The same sum at which the library ends the connection. The frames of cancelled requests stay in
/// its sum although they take no memory; the unread ones do not come near to it.
pub(crate) const SMALL_FRAMES_BUDGET: usize = 64 << 20;
/// The part of that sum with frames of cancelled requests at which a connection takes no more
/// requests.
const WASTED_SMALL_FRAMES: i64 = 32 << 20;
/// The empty frames with padding after which a connection takes no more requests. The library
/// counts them, because padding takes part in flow control, and it ends the connection at 100.
const PADDED_EMPTY_FRAMES: usize = 50;
/// A type of frame that HTTP/2 does not define. A receiver ignores it (RFC 9113, section 4.1).
const IGNORED: u8 = 0xfa;

/// The traffic of a server on one connection, which its handles can see.
#[derive(Debug)]
pub(crate) struct InboundTraffic {
    began: Instant,
    /// Milliseconds from then until the last bytes.
    last: AtomicU64,
    /// What the small frames lack that came since the last gathering.
    small: AtomicUsize,
    /// What the small frames lack that no reader has taken.
    untaken_small: AtomicI64,
    padded_empty: AtomicUsize,
    /// The connection's window, and what the server has left of it. The library opens it again once
    /// readers have taken a third of it.
    window: AtomicU32,
    window_left: AtomicI64,
}

impl InboundTraffic {
    /// The traffic of a connection with this window.
    pub(crate) fn new(window: u32) -> Self {
        Self {
            began: Instant::now(),
            last: AtomicU64::new(0),
            small: AtomicUsize::new(0),
            untaken_small: AtomicI64::new(0),
            padded_empty: AtomicUsize::new(0),
            window: AtomicU32::new(window),
            window_left: AtomicI64::new(window.into()),
        }
    }

    /// Notes that the window becomes larger.
    pub(crate) fn set_window(&self, window: u32) {
        self.window.store(window, Ordering::Relaxed);
    }

    /// Notes what the server has left of the window.
    pub(crate) fn set_window_left(&self, left: i64) {
        self.window_left.store(left, Ordering::Relaxed);
    }

    /// Returns what the server has left of the window.
    pub(crate) fn window_left(&self) -> i64 {
        self.window_left.load(Ordering::Relaxed)
    }

    /// True if less than half of the window is left: more than a quarter of it is unread. Slow
    /// readers could stop the other requests of the connection.
    pub(crate) fn is_crowded(&self) -> bool {
        let window = i64::from(self.window.load(Ordering::Relaxed));
        self.window_left() < window / 2
    }

    /// Returns the time of the last bytes.
    pub(crate) fn last_read(&self) -> Instant {
        self.began + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// True if no more bytes are read until the small frames are gathered.
    pub(crate) fn is_to_gather(&self) -> bool {
        self.small.load(Ordering::Relaxed) >= GATHER_AT
    }

    /// Notes that no small frame is left in the library.
    pub(crate) fn gathered(&self) {
        self.small.store(0, Ordering::Relaxed);
    }

    /// True if the connection comes near to the empty or small frames that the library accepts.
    pub(crate) fn is_worn(&self) -> bool {
        self.padded_empty.load(Ordering::Relaxed) >= PADDED_EMPTY_FRAMES
            || self.untaken_small.load(Ordering::Relaxed) >= WASTED_SMALL_FRAMES
    }

    /// Notes that a reader took a frame with this content.
    pub(crate) fn taken(&self, content: usize) {
        if is_small(content) {
            self.untaken_small
                .fetch_sub(lack_of(content), Ordering::Relaxed);
        }
    }

    pub(crate) fn received(&self) {
        let time = millis(self.began.elapsed());
        self.last.store(time, Ordering::Relaxed);
    }

    pub(crate) fn received_data(&self, frame: FrameHead) {
        let content = frame.length - frame.padding;
        if is_small(content) {
            self.untaken_small
                .fetch_add(lack_of(content), Ordering::Relaxed);
        }
        if frame.flags & END_STREAM != 0 {
            return;
        }
        if is_small(content) {
            self.small
                .fetch_add(SMALL_FRAME - content, Ordering::Relaxed);
        } else if content == 0 && frame.padding > 0 {
            self.padded_empty.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn is_small(content: usize) -> bool {
    (1..SMALL_FRAME).contains(&content)
}

/// Returns what a small frame lacks.
fn lack_of(content: usize) -> i64 {
    i64::try_from(SMALL_FRAME - content).unwrap_or(0)
}

/// The place in the frames of one direction, byte by byte in their heads.
#[derive(Debug, Default)]
pub(crate) struct EmptyDataFilter {
    /// Bytes of the current head that have passed.
    passed: usize,
    length: usize,
    kind: u8,
    /// Bytes of the current payload that have not passed.
    left: usize,
    /// The type of a frame that may be empty data is held until its flags are known.
    holds_kind: bool,
    /// Flags that found no room after their type.
    flags: Option<u8>,
}

impl EmptyDataFilter {
    /// Reads as the inner stream does; `read` gets the bytes as the server sent them.
    pub(crate) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        mut read: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(flags) = self.flags.take() {
                buffer.put_slice(&[flags]);
                return Poll::Ready(Ok(()));
            }
            if self.holds_kind {
                let mut flags = [0];
                let mut one = ReadBuf::new(&mut flags);
                ready!(Pin::new(&mut *inner).poll_read(cx, &mut one))?;
                if one.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                read(one.filled())?;
                self.holds_kind = false;
                let kind = self.kind_with(flags[0]).unwrap_or(DATA);
                self.pass(flags[0]);
                self.flags = Some(flags[0]);
                buffer.put_slice(&[kind]);
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut *inner).poll_read(cx, buffer))?;
            let bytes = &mut buffer.filled_mut()[before..];
            if bytes.is_empty() {
                return Poll::Ready(Ok(()));
            }
            read(bytes)?;
            self.filter(bytes);
            if self.is_at_flags() {
                self.holds_kind = true;
                buffer.set_filled(buffer.filled().len() - 1);
            }
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Changes the type of the empty frames of data in these bytes.
    fn filter(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            if self.left > 0 {
                let part = self.left.min(bytes.len() - at);
                self.left -= part;
                at += part;
                continue;
            }
            if self.is_at_flags()
                && at > 0
                && let Some(kind) = self.kind_with(bytes[at])
            {
                bytes[at - 1] = kind;
            }
            self.pass(bytes[at]);
            at += 1;
        }
    }

    /// Takes the next byte of a head.
    fn pass(&mut self, byte: u8) {
        match self.passed {
            0 => self.length = usize::from(byte),
            1 | 2 => self.length = self.length << 8 | usize::from(byte),
            3 => self.kind = byte,
            _ => {}
        }
        self.passed += 1;
        if self.passed == 9 {
            (self.passed, self.left) = (0, self.length);
        }
    }

    /// True if the next byte decides about an empty frame of data.
    fn is_at_flags(&self) -> bool {
        self.left == 0 && self.passed == 4 && self.length == 0 && self.kind == DATA
    }

    /// Returns the type that replaces that of an empty frame of data with these flags.
    fn kind_with(&self, flags: u8) -> Option<u8> {
        (flags & (END_STREAM | PADDED) == 0).then_some(IGNORED)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::VecDeque;

    use weir_testkit::h2_client::{HEADERS, SETTINGS, frame};

    use super::*;

    /// A stream that is read in the parts in which it was written.
    struct Parts(VecDeque<Vec<u8>>);

    impl AsyncRead for Parts {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut part) = self.0.pop_front() {
                let rest = part.split_off(part.len().min(buffer.remaining()));
                buffer.put_slice(&part);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    fn data(length: usize, flags: u8) -> FrameHead {
        FrameHead {
            length,
            padding: 0,
            kind: DATA,
            flags,
            stream: 1,
        }
    }

    #[test]
    fn small_frames_without_readers_wear_a_connection_out_and_others_do_not() {
        for content in [1, 200] {
            let traffic = InboundTraffic::new(4 << 20);
            let most = 40_000_000 / (SMALL_FRAME - content);
            for _ in 0..most {
                traffic.received_data(data(content, 0));
                traffic.taken(content);
                traffic.received_data(data(content, END_STREAM));
                traffic.taken(content);
            }
            assert!(!traffic.is_worn(), "their readers took them");
            for _ in 0..most {
                traffic.received_data(data(SMALL_FRAME, 0));
            }
            assert!(!traffic.is_worn(), "they are not small");
            for _ in 0..most {
                traffic.received_data(data(content, 0));
            }
            assert!(traffic.is_worn());
        }
    }

    #[test]
    fn connection_is_crowded_while_less_than_half_of_its_window_is_left() {
        let traffic = InboundTraffic::new(1000);
        assert!(!traffic.is_crowded());
        traffic.set_window_left(500);
        assert!(!traffic.is_crowded());
        traffic.set_window_left(499);
        assert!(traffic.is_crowded());
        traffic.set_window(2000);
        traffic.set_window_left(1499);
        assert!(!traffic.is_crowded());
    }

    #[test]
    fn empty_data_is_ignored_however_it_is_cut() {
        let frames = |empty: u8| {
            let mut bytes = frame(SETTINGS, 0, 0, b"123456");
            bytes.extend(frame(HEADERS, 4, 1, b"\x88"));
            bytes.extend(frame(empty, 0, 1, b""));
            bytes.extend(frame(empty, 0, 3, b""));
            bytes.extend(frame(DATA, 0, 1, &[0; 20]));
            bytes.extend(frame(empty, 4, 0x0001_0203, b""));
            bytes.extend(frame(DATA, PADDED, 1, b"\x02.."));
            bytes.extend(frame(DATA, END_STREAM, 1, b""));
            bytes.extend(frame(SETTINGS, 0, 0, b""));
            bytes.extend(frame(empty, 0, 1, b""));
            bytes.extend([0, 0, 0, DATA]);
            bytes
        };
        let (sent, expected) = (frames(DATA), frames(IGNORED));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for part in 1..=sent.len() {
            for room in [1, 2, 3, 64, 1024] {
                let mut stream = Parts(sent.chunks(part).map(<[u8]>::to_vec).collect());
                let mut filter = EmptyDataFilter::default();
                let (mut seen, mut received) = (Vec::new(), Vec::new());
                loop {
                    let mut bytes = vec![0; room];
                    let mut buffer = ReadBuf::new(&mut bytes);
                    let read = filter.poll_read(&mut stream, &mut cx, &mut buffer, |bytes| {
                        received.extend_from_slice(bytes);
                        Ok(())
                    });
                    assert!(matches!(read, Poll::Ready(Ok(()))));
                    if buffer.filled().is_empty() {
                        break;
                    }
                    seen.extend_from_slice(buffer.filled());
                }
                assert_eq!(received, sent);
                // A type without flags is held.
                assert_eq!(
                    seen,
                    expected[..expected.len() - 1],
                    "parts of {part}, room {room}"
                );
            }
        }
    }
}
