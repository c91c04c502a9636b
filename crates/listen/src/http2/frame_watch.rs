//! The frames of an HTTP/2 connection, observed by their heads as they pass: the protocol's library
//! does not expose windows and floods.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_wire::http2_frames::{FrameParser, PREFACE, written_parts};

use crate::http2::flow_control::Http2Flow;

/// The stream `inner`, with its frames reported to the connection's flow control.
pub(super) struct FrameWatch<S> {
    inner: S,
    flow: Arc<Http2Flow>,
    received: FrameParser,
    sent: FrameParser,
}

impl<S> FrameWatch<S> {
    pub(super) fn new(inner: S, flow: Arc<Http2Flow>) -> Self {
        Self {
            inner,
            flow,
            received: FrameParser::new(PREFACE),
            sent: FrameParser::new(0),
        }
    }

    fn observe_written(&mut self, bytes: &[u8]) {
        let flow = &self.flow;
        self.sent.feed(bytes, |seen| flow.sent(seen));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameWatch<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The connection's task ends a flood at its next turn: further bytes are not read.
        if this.flow.is_flooded() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        let (flow, read) = (&this.flow, &buffer.filled()[before..]);
        flow.add_moved(read.len());
        this.received.feed(read, |seen| flow.received(seen));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameWatch<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, data))?;
        this.flow.add_moved(written);
        this.observe_written(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, data))?;
        this.flow.add_moved(written);
        for part in written_parts(data, written) {
            this.observe_written(part);
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
    use weir_testkit::h2_client::{HEADERS, INITIAL_WINDOW_SIZE, SETTINGS, WINDOW_UPDATE, frame};
    use weir_wire::http2_frames::{DATA, FrameHead, FramePiece};

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
        let head = |length, kind, flags, stream| {
            FramePiece::Head(FrameHead {
                length,
                padding: 0,
                kind,
                flags,
                stream,
            })
        };
        let expected = [
            head(6, SETTINGS, 0, 0),
            FramePiece::Setting(INITIAL_WINDOW_SIZE, 7),
            head(3, HEADERS, 5, 1),
            head(4, WINDOW_UPDATE, 0, 1),
            FramePiece::Window(1, 9),
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
