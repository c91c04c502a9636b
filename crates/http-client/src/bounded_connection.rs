//! Connections for documents, with a bound on what a server sends beside them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_http2_client::BoundedFrames;

/// The bytes that may come on an HTTP/1.1 connection after a request for a document.
const MAX_DOCUMENT_BYTES: usize = 2 << 20;

/// A connection that ends if too much comes without content.
#[derive(Debug)]
pub(crate) enum BoundedConnection<S> {
    Http2(BoundedFrames<S>),
    Http1(BoundedDocuments<S>),
}

/// An HTTP/1.1 connection that carries documents.
#[derive(Debug)]
pub(crate) struct BoundedDocuments<S> {
    inner: S,
    /// Bytes read since the last request.
    read: usize,
}

impl<S> BoundedConnection<S> {
    /// Bounds an HTTP/2 connection.
    pub(crate) fn frames(inner: S) -> Self {
        Self::Http2(BoundedFrames::new(inner))
    }

    /// Bounds an HTTP/1.1 connection that carries documents.
    pub(crate) const fn documents(inner: S) -> Self {
        Self::Http1(BoundedDocuments { inner, read: 0 })
    }
}

fn received_document(read: &mut usize, bytes: &[u8]) -> io::Result<()> {
    *read += bytes.len();
    if *read > MAX_DOCUMENT_BYTES {
        Err(io::Error::other("the server sends more than a document"))
    } else {
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http2(frames) => Pin::new(frames).poll_read(cx, buffer),
            Self::Http1(documents) => {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut documents.inner).poll_read(cx, buffer))?;
                Poll::Ready(received_document(
                    &mut documents.read,
                    &buffer.filled()[before..],
                ))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedConnection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Http2(frames) => Pin::new(frames).poll_write(cx, data),
            Self::Http1(documents) => {
                let written = ready!(Pin::new(&mut documents.inner).poll_write(cx, data))?;
                documents.read = 0;
                Poll::Ready(Ok(written))
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Http2(frames) => Pin::new(frames).poll_write_vectored(cx, data),
            Self::Http1(documents) => {
                let inner = Pin::new(&mut documents.inner);
                let written = ready!(inner.poll_write_vectored(cx, data))?;
                documents.read = 0;
                Poll::Ready(Ok(written))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Http2(frames) => frames.is_write_vectored(),
            Self::Http1(documents) => documents.inner.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http2(frames) => Pin::new(frames).poll_flush(cx),
            Self::Http1(documents) => Pin::new(&mut documents.inner).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http2(frames) => Pin::new(frames).poll_shutdown(cx),
            Self::Http1(documents) => Pin::new(&mut documents.inner).poll_shutdown(cx),
        }
    }
}

impl<S: Connection> Connection for BoundedConnection<S> {
    fn connected(&self) -> Connected {
        match self {
            Self::Http2(frames) => frames.get_ref().connected(),
            Self::Http1(documents) => documents.inner.connected(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_document_is_bounded_and_the_next_request_begins_anew() {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let mut near = BoundedConnection::documents(near);
        let mut document = vec![0; MAX_DOCUMENT_BYTES];
        let sent = document.clone();
        let sending = tokio::spawn(async move {
            for _ in 0..3 {
                far.read_exact(&mut [0; 3]).await.unwrap();
                far.write_all(&sent).await.unwrap();
            }
            far.write_all(b"x").await.unwrap();
            far
        });
        for _ in 0..3 {
            near.write_all(b"GET").await.unwrap();
            near.read_exact(&mut document).await.unwrap();
        }
        assert!(near.read_exact(&mut [0]).await.is_err());
        drop(sending.await.unwrap());
    }
}
