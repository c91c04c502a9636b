//! The body of an answer. With its last byte the connection is free for another request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::head::Framing;
use super::turn::Line;
use super::{LineError, Lines};

/// The body of an answer. Dropping it before its end takes the request back.
#[derive(Debug)]
pub(crate) struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Single(Single),
    Many(Incoming),
}

/// A body on a connection of its own.
#[derive(Debug)]
struct Single {
    /// `None` after the end.
    line: Option<Line>,
    framing: Framing,
    /// Where the connection goes after the end; `None` if it cannot be used again.
    home: Option<Arc<Lines>>,
}

impl Body {
    pub(super) fn single(line: Line, framing: Framing, home: Option<Arc<Lines>>) -> Self {
        let mut single = Single { line: Some(line), framing, home };
        single.settle();
        Self(Kind::Single(single))
    }

    pub(super) fn many(body: Incoming) -> Self {
        Self(Kind::Many(body))
    }
}

#[cfg(test)]
impl Body {
    /// Waits until more of it is at hand.
    pub(super) async fn readable(&self) {
        if let Kind::Single(Single { line: Some(line), .. }) = &self.0 {
            line.readable().await;
        }
    }
}

impl Single {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, LineError>>> {
        loop {
            let Some(line) = &mut self.line else { return Poll::Ready(None) };
            match self.framing.next(line) {
                Ok(None) => {}
                Ok(Some(data)) => {
                    self.settle();
                    return Poll::Ready(Some(Ok(data)));
                }
                Err(error) => return self.failed(error),
            }
            self.settle();
            let Some(line) = &mut self.line else { continue };
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

    /// Gives the connection back if all was read.
    fn settle(&mut self) {
        if !self.framing.is_over() {
            return;
        }
        if let (Some(line), Some(home)) = (self.line.take(), self.home.take())
            && let Some(line) = line.rested()
        {
            home.keep(line);
        }
    }
}

impl Framing {
    /// Takes the next bytes of the body off what was read; `None` if they are still to come, or the body is over.
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
                let now = usize::try_from(*rest).unwrap_or(usize::MAX).min(unread.len());
                *rest -= now as u64;
                Ok(Some(unread.split_to(now).freeze()))
            }
        }
    }
}

impl Drop for Single {
    /// Often only the end of a stream is still to be read, and it is there: then the connection is kept.
    fn drop(&mut self) {
        if self.home.is_none() || matches!(self.framing, Framing::Length(_)) {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop());
        drop(self.poll_data(&mut cx));
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = LineError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, LineError>>> {
        match &mut self.0 {
            Kind::Single(single) => single.poll_data(cx).map_ok(Frame::data),
            Kind::Many(body) => Pin::new(body).poll_frame(cx).map_err(LineError::Stream),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Single(single) => single.line.is_none(),
            Kind::Many(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Single(single) => match &single.framing {
                Framing::Length(rest) => SizeHint::with_exact(*rest),
                Framing::Chunked(_) | Framing::Close => SizeHint::default(),
            },
            Kind::Many(body) => body.size_hint(),
        }
    }
}
