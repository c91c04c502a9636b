//! The body of a response. Dropped after its last byte, it returns the connection to the pool.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::head::Framing;
use super::turn::Line;
use super::{LineError, Lines, Retired};

/// The body of a response. Dropping it before its end cancels the request.
#[derive(Debug)]
pub(crate) struct Body {
    kind: Kind,
    is_kept: bool,
}

#[derive(Debug)]
enum Kind {
    Single(Single),
    Many(Many),
}

/// A body on an HTTP/2 stream.
#[derive(Debug)]
struct Many {
    incoming: Incoming,
    /// The retirement mark of its connection, and the pool that keeps the connection.
    connection: (Retired, Arc<Lines>),
}

/// A body on an HTTP/1.1 connection.
#[derive(Debug)]
struct Single {
    /// Absent once the connection is lost, or closed at the end.
    line: Option<Line>,
    framing: Framing,
    /// The pool that takes the connection after the end; absent if the connection cannot be used
    /// again.
    home: Option<Arc<Lines>>,
}

impl Body {
    pub(super) fn single(line: Line, framing: Framing, home: Option<Arc<Lines>>) -> Self {
        let is_kept = line.is_kept;
        let mut single = Single {
            line: Some(line),
            framing,
            home,
        };
        if single.framing.is_over() {
            single.settle();
        }
        Self {
            kind: Kind::Single(single),
            is_kept,
        }
    }

    pub(super) fn many(incoming: Incoming, connection: Retired, home: Arc<Lines>) -> Self {
        Self {
            kind: Kind::Many(Many {
                incoming,
                connection: (connection, home),
            }),
            is_kept: false,
        }
    }

    /// True if the response came on an HTTP/1.1 connection that had carried another one before: its
    /// bytes may belong to another request.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Keeps the connection from being used again, because the server's responses on it belong to
    /// other requests. An HTTP/1.1 connection is closed. An HTTP/2 connection takes no more
    /// requests and is closed after those it has; this one is reset when the body is dropped.
    pub(crate) fn distrust(&mut self) {
        match &mut self.kind {
            Kind::Single(single) => single.home = None,
            Kind::Many(Many {
                connection: (mark, home),
                ..
            }) => home.retire(mark),
        }
    }
}

#[cfg(test)]
impl Body {
    /// Waits until more of the body is readable.
    pub(super) async fn readable(&self) {
        if let Kind::Single(Single {
            line: Some(line),
            framing,
            ..
        }) = &self.kind
            && !framing.is_over()
        {
            line.readable().await;
        }
    }
}

impl Single {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, LineError>>> {
        loop {
            if self.framing.is_over() {
                return Poll::Ready(None);
            }
            let Some(line) = &mut self.line else {
                return Poll::Ready(None);
            };
            match self.framing.next(line) {
                Ok(None) if self.framing.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                Err(error) => return self.failed(error),
            }
            match (ready!(line.poll_more(cx)), &self.framing) {
                (Ok(()), _) => {}
                (Err(LineError::Closed), Framing::Close) => self.line = None,
                (Err(error), _) => return self.failed(error),
            }
        }
    }

    fn failed(&mut self, error: LineError) -> Poll<Option<Result<Bytes, LineError>>> {
        self.line = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Returns the connection to the pool.
    fn settle(&mut self) {
        if let (Some(line), Some(home)) = (self.line.take(), self.home.take())
            && let Some(line) = line.rested()
        {
            home.keep(line);
        }
    }

    /// True if the body is over.
    fn is_over(&self) -> bool {
        self.line.is_none() || self.framing.is_over()
    }
}

impl Framing {
    /// Takes the next bytes of the body off the read buffer; absent if they are still to come, or
    /// the body is over.
    fn next(&mut self, line: &mut Line) -> Result<Option<Bytes>, LineError> {
        let unread = &mut line.unread;
        match self {
            Self::Chunked(chunked) => {
                let data = chunked.next(unread)?;
                chunked.look(unread)?;
                Ok(data)
            }
            Self::Length(_) | Self::Close if unread.is_empty() => Ok(None),
            Self::Close => Ok(Some(unread.split().freeze())),
            Self::Length(rest) => {
                let now = usize::try_from(*rest)
                    .unwrap_or(usize::MAX)
                    .min(unread.len());
                *rest -= now as u64;
                Ok(Some(unread.split_to(now).freeze()))
            }
        }
    }
}

impl Drop for Single {
    /// Returns the connection to the pool if all was read. Often only the end of a stream is unread
    /// but has arrived: then the connection is kept, too.
    fn drop(&mut self) {
        if self.home.is_none() {
            return;
        }
        if !self.framing.is_over() && !matches!(self.framing, Framing::Length(_)) {
            drop(self.poll_data(&mut Context::from_waker(Waker::noop())));
        }
        if self.framing.is_over() {
            self.settle();
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = LineError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LineError>>> {
        match &mut self.kind {
            Kind::Single(single) => single.poll_data(cx).map_ok(Frame::data),
            Kind::Many(body) => Pin::new(&mut body.incoming)
                .poll_frame(cx)
                .map_err(LineError::Stream),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Single(single) => single.is_over(),
            Kind::Many(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Single(single) => match &single.framing {
                Framing::Length(rest) => SizeHint::with_exact(*rest),
                Framing::Chunked(_) | Framing::Close => SizeHint::default(),
            },
            Kind::Many(body) => body.incoming.size_hint(),
        }
    }
}
