//! The frames of an HTTP/2 connection, seen by their heads as they pass: windows and floods, which the protocol's library
//! does not show.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flow::Flow;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
pub(super) const END_STREAM: u8 = 1;

/// The length of what a client writes before its first frame.
const PREFACE: usize = 24;
const HEAD: usize = 9;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// What is seen of frames that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A frame's head.
    Head(FrameHead),
    /// A setting: its name and value.
    Setting(u16, u32),
    /// The increment of a WINDOW_UPDATE for this stream.
    Window(u32, u32),
}

/// Follows the frames of one direction, however they are cut.
#[derive(Debug)]
struct FrameParser {
    /// Bytes before the next frame's head.
    preface: usize,
    head: [u8; HEAD],
    filled: usize,
    current: FrameHead,
    /// Bytes left of the current frame's payload.
    left: usize,
    /// The entry of a payload that is being read.
    entry: [u8; 6],
    entered: usize,
}

impl FrameParser {
    fn new(preface: usize) -> Self {
        let current = FrameHead { length: 0, kind: 0, flags: 0, stream: 0 };
        Self { preface, head: [0; HEAD], filled: 0, current, left: 0, entry: [0; 6], entered: 0 }
    }

    fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Seen)) {
        let skipped = self.preface.min(bytes.len());
        self.preface -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.left == 0 {
                let part = (HEAD - self.filled).min(bytes.len());
                self.head[self.filled..self.filled + part].copy_from_slice(&bytes[..part]);
                self.filled += part;
                bytes = &bytes[part..];
                if self.filled == HEAD {
                    self.begin(&mut seen);
                }
                continue;
            }
            let part = self.left.min(bytes.len());
            self.payload(&bytes[..part], &mut seen);
            self.left -= part;
            bytes = &bytes[part..];
        }
    }

    fn begin(&mut self, seen: &mut impl FnMut(Seen)) {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = self.head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        self.current = FrameHead { length, kind, flags, stream };
        (self.left, self.filled, self.entered) = (length, 0, 0);
        seen(Seen::Head(self.current));
    }

    /// Reads the entries of the two types that say something about windows.
    fn payload(&mut self, bytes: &[u8], seen: &mut impl FnMut(Seen)) {
        let size = match self.current.kind {
            SETTINGS => 6,
            WINDOW_UPDATE => 4,
            _ => return,
        };
        for byte in bytes {
            self.entry[self.entered] = *byte;
            self.entered += 1;
            if self.entered < size {
                continue;
            }
            self.entered = 0;
            let [a, b, c, d, e, f] = self.entry;
            seen(match size {
                6 => Seen::Setting(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])),
                _ => Seen::Window(self.current.stream, u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff),
            });
        }
    }
}

/// `inner`, whose frames are told to the connection's flow.
pub(super) struct FrameWatch<S> {
    inner: S,
    flow: Arc<Flow>,
    received: FrameParser,
    sent: FrameParser,
}

impl<S> FrameWatch<S> {
    pub(super) fn new(inner: S, flow: Arc<Flow>) -> Self {
        Self { inner, flow, received: FrameParser::new(PREFACE), sent: FrameParser::new(0) }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        let flow = &self.flow;
        self.sent.feed(bytes, |seen| flow.sent(seen));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameWatch<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The connection's task ends a flood as soon as it gets to it: what else comes is not read.
        if this.flow.is_flooded() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        let (flow, read) = (&this.flow, &buffer.filled()[before..]);
        flow.moved(read.len());
        this.received.feed(read, |seen| flow.received(seen));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameWatch<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, data))?;
        this.flow.moved(written);
        this.wrote(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, data))?;
        this.flow.moved(written);
        let mut left = written;
        for slice in data {
            let part = left.min(slice.len());
            this.wrote(&slice[..part]);
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

#[cfg(test)]
mod tests {
    use weir_testkit::h2::{INITIAL_WINDOW_SIZE, frame};

    use super::*;

    #[test]
    fn frames_are_seen_however_they_are_cut() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend(7u32.to_be_bytes());
        bytes.extend(frame(SETTINGS, 0, 0, &settings));
        bytes.extend(frame(HEADERS, 5, 1, b"\x82\x86\x84"));
        bytes.extend(frame(WINDOW_UPDATE, 0, 1, &9u32.to_be_bytes()));
        bytes.extend(frame(DATA, 1, 3, b""));
        let head = |length, kind, flags, stream| Seen::Head(FrameHead { length, kind, flags, stream });
        let expected = [
            head(6, SETTINGS, 0, 0),
            Seen::Setting(INITIAL_WINDOW_SIZE, 7),
            head(3, HEADERS, 5, 1),
            head(4, WINDOW_UPDATE, 0, 1),
            Seen::Window(1, 9),
            head(0, DATA, 1, 3),
        ];
        for size in 1..=bytes.len() {
            let (mut parser, mut all) = (FrameParser::new(PREFACE), Vec::new());
            for part in bytes.chunks(size) {
                parser.feed(part, |seen| all.push(seen));
            }
            assert_eq!(all, expected, "in parts of {size}");
        }
    }
}
