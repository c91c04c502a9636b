//! The body of one answer as the messages in it, whether it is JSON or a stream of events.
//!
//! Small messages come whole. The result of a large response comes in pieces, so that weir never holds more of it than
//! the network has just given. Which message belongs to whom is decided elsewhere.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use weir_core::telemetry::UpstreamMeter;
use weir_wire::splitter::{Piece, ReplySplitter, SplitCaps};
use weir_wire::sse::{self, SseItem};
use weir_wire::{Limits, Response};

use crate::line::{Body, LineError};
use crate::site::Site;

/// A message up to this size is kept whole; the result of a longer one is passed on in pieces.
const WHOLE: usize = 64 << 10;

/// One thing an answer holds.
#[derive(Debug)]
pub(crate) enum Part {
    /// A whole message, or a batch of them.
    Message(Bytes),
    /// The first bytes of the `result` of a large response. More follow as [`Part::Result`].
    Large(Bytes),
    /// More bytes of that result.
    Result(Bytes),
    /// The large response is over, and this is whose answer it was.
    LargeEnd(Response),
    /// An event's id, for resuming, and where the server gave one a time to wait.
    Mark { id: Option<String>, retry: Option<u64> },
}

/// Why an answer cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// The connection was lost before the end.
    #[error("the connection was lost in the middle of the answer")]
    Lost(#[source] LineError),
    /// More bytes than an answer may have.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// Not what it says it is.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

/// An answer that is being read. Dropping it takes the request back.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Body,
    /// Set for a stream of events.
    events: Option<Box<sse::Decoder>>,
    rest: Bytes,
    message: Collector,
    parts: VecDeque<Part>,
    room: usize,
    most: usize,
    over: bool,
    meter: Arc<UpstreamMeter>,
}

impl Answer {
    /// A JSON body: one message.
    pub(crate) fn json(body: Body, site: &Site) -> Self {
        Self::new(body, None, site)
    }

    /// A stream of events: many messages.
    pub(crate) fn events(body: Body, site: &Site) -> Self {
        let caps = sse::Caps { max_event: site.bounds.max_reply as u64, ..sse::Caps::default() };
        Self::new(body, Some(Box::new(sse::Decoder::new(caps))), site)
    }

    fn new(body: Body, events: Option<Box<sse::Decoder>>, site: &Site) -> Self {
        let (most, meter) = (site.bounds.max_reply, site.meter.clone());
        let message = Collector::new(most);
        Self { body, events, rest: Bytes::new(), message, parts: VecDeque::new(), room: most, most, over: false, meter }
    }

    /// For a stream that lives as long as the connection: only single events are bounded, not their sum.
    pub(crate) fn endless(mut self) -> Self {
        self.room = usize::MAX;
        self
    }

    /// True for a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.events.is_some()
    }

    /// The next part; `None` at the end of the body.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, AnswerError>> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Poll::Ready(Ok(Some(part)));
            }
            if !self.rest.is_empty() {
                self.decode()?;
                continue;
            }
            if self.over {
                return Poll::Ready(Ok(None));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.meter.received(data.len());
                        self.room = self.room.checked_sub(data.len()).ok_or(AnswerError::TooLarge(self.most))?;
                        self.rest = data;
                    }
                    // Where the length is known, the end needs no further look, and no further wake from the connection.
                    if self.body.is_end_stream() {
                        self.decode()?;
                        self.ended()?;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(AnswerError::Lost(error))),
                None => self.ended()?,
            }
        }
    }

    /// The body's end.
    fn ended(&mut self) -> Result<(), AnswerError> {
        self.over = true;
        // An unfinished event does not count; an unfinished JSON body is malformed.
        if self.events.is_none() { self.message.finish(&mut self.parts) } else { Ok(()) }
    }

    /// The next part.
    pub(crate) async fn part(&mut self) -> Result<Option<Part>, AnswerError> {
        std::future::poll_fn(|cx| self.poll_part(cx)).await
    }

    fn decode(&mut self) -> Result<(), AnswerError> {
        let Some(decoder) = &mut self.events else {
            return self.message.feed(std::mem::take(&mut self.rest), &mut self.parts);
        };
        while self.parts.is_empty() {
            let item = decoder.feed(&mut self.rest).map_err(|error| match error {
                sse::SseError::EventTooLarge => AnswerError::TooLarge(self.most),
                other => AnswerError::Malformed(other.to_string()),
            })?;
            match item {
                None => return Ok(()),
                Some(SseItem::Data(chunk)) => self.message.feed(chunk, &mut self.parts)?,
                Some(SseItem::End { id, has_data, .. }) => {
                    // An event with empty data opens a stream that can be resumed: no message.
                    if has_data && !self.message.is_blank() {
                        self.message.finish(&mut self.parts)?;
                    }
                    if id.is_some() {
                        self.parts.push_back(Part::Mark { id, retry: None });
                    }
                }
                Some(SseItem::Retry(millis)) => self.parts.push_back(Part::Mark { id: None, retry: Some(millis) }),
                Some(SseItem::Comment) => {}
            }
        }
        Ok(())
    }
}

/// One message while it arrives: held whole until it is large, then split.
#[derive(Debug)]
struct Collector {
    first: Bytes,
    more: BytesMut,
    splitter: Option<Box<ReplySplitter>>,
    begun: bool,
    most: usize,
}

impl Collector {
    fn new(most: usize) -> Self {
        Self { first: Bytes::new(), more: BytesMut::new(), splitter: None, begun: false, most }
    }

    /// True if nothing but blanks came.
    fn is_blank(&self) -> bool {
        self.splitter.is_none()
            && [&self.first[..], &self.more[..]].iter().all(|held| held.iter().all(u8::is_ascii_whitespace))
    }

    fn feed(&mut self, chunk: Bytes, parts: &mut VecDeque<Part>) -> Result<(), AnswerError> {
        if self.splitter.is_none() {
            if self.first.len() + self.more.len() + chunk.len() <= WHOLE {
                self.hold(&chunk);
                return Ok(());
            }
            let caps = SplitCaps { stream_over: WHOLE, max_total: self.most as u64, ..SplitCaps::default() };
            self.splitter = Some(Box::new(ReplySplitter::new(caps)));
            let held = self.take();
            self.split(&held, parts)?;
        }
        self.split(&chunk, parts)
    }

    fn split(&mut self, chunk: &Bytes, parts: &mut VecDeque<Part>) -> Result<(), AnswerError> {
        let Some(splitter) = &mut self.splitter else { return Ok(()) };
        let mut pieces = Vec::new();
        let fed = splitter.feed(chunk, &mut pieces);
        parts.extend(pieces.into_iter().filter_map(|piece| part(piece, &mut self.begun)));
        fed.map_err(|error| broken(error, self.most))
    }

    /// The message's end.
    fn finish(&mut self, parts: &mut VecDeque<Part>) -> Result<(), AnswerError> {
        let last = match self.splitter.take() {
            None => Some(Part::Message(self.take())),
            Some(splitter) => part(splitter.finish().map_err(|error| broken(error, self.most))?, &mut self.begun),
        };
        self.begun = false;
        parts.extend(last);
        Ok(())
    }

    /// Keeps a first chunk as it is: most messages arrive in one.
    fn hold(&mut self, chunk: &Bytes) {
        if self.first.is_empty() && self.more.is_empty() {
            self.first = chunk.clone();
            return;
        }
        if self.more.is_empty() {
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(chunk);
    }

    fn take(&mut self) -> Bytes {
        if self.more.is_empty() { std::mem::take(&mut self.first) } else { self.more.split().freeze() }
    }
}

fn part(piece: Piece, begun: &mut bool) -> Option<Part> {
    Some(match piece {
        Piece::Whole(bytes) => Part::Message(bytes),
        Piece::Result(bytes) if std::mem::replace(begun, true) => Part::Result(bytes),
        Piece::Result(bytes) => Part::Large(bytes),
        Piece::End(response) => Part::LargeEnd(response),
    })
}

fn broken(error: weir_wire::splitter::SplitError, most: usize) -> AnswerError {
    match error {
        weir_wire::splitter::SplitError::TooLong => AnswerError::TooLarge(most),
        other => AnswerError::Malformed(other.to_string()),
    }
}

/// Bounds of what a server sends as one message: as deep as any, with room for long lists and batches.
pub(crate) fn limits() -> Limits {
    Limits { max_batch: 1000, ..Limits::upstream() }
}
