//! The body of a response. Dropped after its last byte, it returns the connection to the pool.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use weir_http1::ResponseFraming;
use weir_http2_client::Http2Response;

use crate::http_error::UpstreamHttpError;
use crate::http1_connection::Http1Connection;
use crate::http2_connection::StreamSlot;
use crate::shared_pool::SharedPool;

/// The body of a response. Dropping it before its end cancels the request.
#[derive(Debug)]
pub struct HttpResponseBody {
    kind: BodyProtocol,
    is_kept: bool,
}

#[derive(Debug)]
enum BodyProtocol {
    Http1(Http1Body),
    Http2(Http2Body),
}

/// A body on an HTTP/2 stream.
#[derive(Debug)]
struct Http2Body {
    /// Dropped before its slot: dropping it ends the stream.
    response: Http2Response,
    slot: StreamSlot,
    /// The pool that keeps the connection.
    pool: Arc<SharedPool>,
}

/// A body on an HTTP/1.1 connection.
#[derive(Debug)]
struct Http1Body {
    /// Absent once the connection is lost, or closed at the end.
    connection: Option<Http1Connection>,
    framing: ResponseFraming,
    /// The pool that takes the connection after the end; absent if the connection cannot be used
    /// again.
    pool: Option<Arc<SharedPool>>,
}

impl HttpResponseBody {
    pub(super) fn http1(
        connection: Http1Connection,
        framing: ResponseFraming,
        pool: Option<Arc<SharedPool>>,
    ) -> Self {
        let is_kept = connection.is_kept;
        let mut body = Http1Body {
            connection: Some(connection),
            framing,
            pool,
        };
        if body.framing.is_over() {
            body.return_connection();
        }
        Self {
            kind: BodyProtocol::Http1(body),
            is_kept,
        }
    }

    pub(super) fn http2(response: Http2Response, slot: StreamSlot, pool: Arc<SharedPool>) -> Self {
        Self {
            kind: BodyProtocol::Http2(Http2Body {
                response,
                slot,
                pool,
            }),
            is_kept: false,
        }
    }

    /// True if the response came on an HTTP/1.1 connection that had carried another one before: its
    /// bytes may belong to another request.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Keeps the connection from being used again, because the server's responses on it belong to
    /// other requests. An HTTP/1.1 connection is closed. An HTTP/2 connection takes no more
    /// requests and is closed after those it has; this one is reset when the body is dropped.
    pub fn retire_connection(&mut self) {
        match &mut self.kind {
            BodyProtocol::Http1(body) => body.pool = None,
            BodyProtocol::Http2(Http2Body { slot, pool, .. }) => pool.retire(slot),
        }
    }
}

#[cfg(test)]
impl HttpResponseBody {
    /// Waits until more of the body is readable.
    pub(super) async fn readable(&self) {
        if let BodyProtocol::Http1(Http1Body {
            connection: Some(connection),
            framing,
            ..
        }) = &self.kind
            && !framing.is_over()
        {
            connection.readable().await;
        }
    }
}

impl Http1Body {
    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UpstreamHttpError>>> {
        loop {
            if self.framing.is_over() {
                return Poll::Ready(None);
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(None);
            };
            match self.framing.next(&mut connection.unread) {
                Ok(None) if self.framing.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                Err(error) => return self.failed(error.into()),
            }
            match (ready!(connection.poll_read(cx)), &self.framing) {
                (Ok(()), _) => {}
                (Err(UpstreamHttpError::Closed), ResponseFraming::Close) => self.connection = None,
                (Err(error), _) => return self.failed(error),
            }
        }
    }

    fn failed(
        &mut self,
        error: UpstreamHttpError,
    ) -> Poll<Option<Result<Bytes, UpstreamHttpError>>> {
        self.connection = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Returns the connection to the pool.
    fn return_connection(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.take())
            && let Some(connection) = connection.into_idle()
        {
            pool.return_to_pool(connection);
        }
    }

    /// True if the body is over.
    fn is_over(&self) -> bool {
        self.connection.is_none() || self.framing.is_over()
    }
}

impl Drop for Http1Body {
    /// Returns the connection to the pool if all was read. Often only the end of a stream is unread
    /// but has arrived: then the connection is kept, too.
    fn drop(&mut self) {
        if self.pool.is_none() {
            return;
        }
        if !self.framing.is_over() && !matches!(self.framing, ResponseFraming::Length(_)) {
            drop(self.poll_data(&mut Context::from_waker(Waker::noop())));
        }
        if self.framing.is_over() {
            self.return_connection();
        }
    }
}

impl http_body::Body for HttpResponseBody {
    type Data = Bytes;
    type Error = UpstreamHttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamHttpError>>> {
        match &mut self.kind {
            BodyProtocol::Http1(body) => body.poll_data(cx).map_ok(Frame::data),
            BodyProtocol::Http2(body) => body
                .response
                .poll_data(cx)
                .map_ok(Frame::data)
                .map_err(UpstreamHttpError::Stream),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyProtocol::Http1(body) => body.is_over(),
            BodyProtocol::Http2(body) => body.response.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyProtocol::Http1(body) => match &body.framing {
                ResponseFraming::Length(rest) => SizeHint::with_exact(*rest),
                ResponseFraming::Chunked(_) | ResponseFraming::Close => SizeHint::default(),
            },
            BodyProtocol::Http2(_) => SizeHint::default(),
        }
    }
}
