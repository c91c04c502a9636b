//! The decoder that assembles whole events.

use bytes::Bytes;

use crate::kept_bytes::KeptBytes;
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
    data: KeptBytes,
}

impl EventDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(caps: SseCaps) -> Self {
        Self {
            decoder: SseDecoder::new(caps),
            data: KeptBytes::default(),
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
                SseItem::Data(chunk) => self.data.push(chunk),
                SseItem::End {
                    event,
                    id,
                    has_data: true,
                } => {
                    return Ok(Some(DecodedEvent::Message {
                        event,
                        id,
                        data: self.data.take(),
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
}
