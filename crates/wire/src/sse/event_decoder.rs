//! The decoder that assembles whole events.

use bytes::{Bytes, BytesMut};

use crate::sse::decoder::{SseCaps, SseDecoder, SseError, SseItem};

/// One complete event, or a keep-alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedEvent {
    /// An event that had data, even if empty.
    Message {
        /// Its type, if given and not empty.
        event: Option<String>,
        /// Its id, if it gave one.
        id: Option<String>,
        /// Its data lines, joined by newlines.
        data: Bytes,
    },
    /// An event without data: only its id counts.
    Id(String),
    /// The reconnection time in milliseconds.
    Retry(u64),
    /// A comment.
    Comment,
}

/// A [`SseDecoder`] for streams of small events: holds the data of one event, at most
/// [`SseCaps::max_event`] bytes.
#[derive(Debug)]
pub struct EventDecoder {
    decoder: SseDecoder,
    first: Bytes,
    rest: BytesMut,
}

impl EventDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(caps: SseCaps) -> Self {
        Self {
            decoder: SseDecoder::new(caps),
            first: Bytes::new(),
            rest: BytesMut::new(),
        }
    }

    /// Takes bytes off the front of `input` up to the end of the next event; `None` means that more
    /// is needed.
    ///
    /// # Errors
    /// As [`SseDecoder::feed`].
    pub fn feed(&mut self, input: &mut Bytes) -> Result<Option<DecodedEvent>, SseError> {
        while let Some(item) = self.decoder.feed(input)? {
            match item {
                SseItem::Data(chunk) => self.push(chunk),
                SseItem::End {
                    event,
                    id,
                    has_data: true,
                } => {
                    return Ok(Some(DecodedEvent::Message {
                        event,
                        id,
                        data: self.take(),
                    }));
                }
                SseItem::End { id: Some(id), .. } => return Ok(Some(DecodedEvent::Id(id))),
                SseItem::End { .. } => {}
                SseItem::Retry(millis) => return Ok(Some(DecodedEvent::Retry(millis))),
                SseItem::Comment => return Ok(Some(DecodedEvent::Comment)),
            }
        }
        Ok(None)
    }

    /// Reports if the stream stands between two events.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        self.decoder.is_between_events()
    }

    /// Keeps an only chunk as a slice of the input; copies from the second on.
    fn push(&mut self, chunk: Bytes) {
        if self.first.is_empty() && self.rest.is_empty() {
            self.first = chunk;
            return;
        }
        self.rest
            .extend_from_slice(&std::mem::take(&mut self.first));
        self.rest.extend_from_slice(&chunk);
    }

    fn take(&mut self) -> Bytes {
        if self.rest.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            self.rest.split().freeze()
        }
    }
}
