//! The messages of a response: one JSON text, or the events of a stream.

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_front::InMemoryBody;
use weir_wire::header::{EVENTS, JSON};
use weir_wire::sse::{DecodedEvent, EventDecoder, SseCaps};

/// The longest message that is passed on.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// The size from which a message waits until no other one of this size is in progress.
const LARGE: usize = 512 << 10;

/// The failure of a response without its message, in words.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenResponse {
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    #[error("The answer is larger than {} MiB, the most that goes over standard streams", MAX_MESSAGE_BYTES >> 20)]
    TooLarge,
    /// The response broke off.
    #[error("The answer broke off: {0}")]
    Lost(String),
}

/// The messages of a response as they come.
pub(super) struct ResponseMessages<'a> {
    body: InMemoryBody,
    status: StatusCode,
    kind: ResponseBodyKind,
    /// The permit for large messages, one at a time.
    room: &'a Semaphore,
    held: Option<SemaphorePermit<'a>>,
    /// The bytes of the message being read.
    size: usize,
}

enum ResponseBodyKind {
    Events {
        decoder: Box<EventDecoder>,
        unread: Bytes,
    },
    Json,
    /// Plain text: a refusal in words.
    Text,
    Over,
}

impl<'a> ResponseMessages<'a> {
    pub(crate) fn new(response: Response<InMemoryBody>, room: &'a Semaphore) -> Self {
        let (head, body) = response.into_parts();
        let media = head
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|media| media.to_str().ok())
            .unwrap_or_default();
        let kind = match media.split(';').next().unwrap_or_default().trim() {
            EVENTS => ResponseBodyKind::Events {
                decoder: Box::new(EventDecoder::new(SseCaps {
                    max_event: MAX_MESSAGE_BYTES as u64,
                    ..SseCaps::default()
                })),
                unread: Bytes::new(),
            },
            JSON => ResponseBodyKind::Json,
            _ => ResponseBodyKind::Text,
        };
        Self {
            body,
            status: head.status,
            kind,
            room,
            held: None,
            size: 0,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the text of a response without messages.
    pub(crate) async fn text(mut self) -> String {
        if !matches!(self.kind, ResponseBodyKind::Text) {
            return String::new();
        }
        let text = self.whole().await.unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// Returns the next message; `None` at the end, and for a response without messages. The permit
    /// of a large message is released with the next call. So a slow host holds up one large
    /// message, not one of each request.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BrokenResponse> {
        self.held = None;
        match &mut self.kind {
            ResponseBodyKind::Events { .. } => self.next_event().await,
            ResponseBodyKind::Json => {
                let whole = self.whole().await?;
                self.kind = ResponseBodyKind::Over;
                Ok(Some(whole).filter(|whole| !whole.is_empty()))
            }
            ResponseBodyKind::Text | ResponseBodyKind::Over => Ok(None),
        }
    }

    async fn next_event(&mut self) -> Result<Option<Bytes>, BrokenResponse> {
        loop {
            let ResponseBodyKind::Events { decoder, unread } = &mut self.kind else {
                return Ok(None);
            };
            let decoded = decoder.feed(unread).map_err(|_| BrokenResponse::TooLarge)?;
            match decoded {
                Some(DecodedEvent::Message { data, .. }) => {
                    self.size = 0;
                    // An event without data is no message.
                    if !data.is_empty() {
                        return Ok(Some(data));
                    }
                }
                Some(_) => {}
                None if decoder.is_between_events() && self.size > 0 => self.size = 0,
                None => match self.frame().await? {
                    Some(data) => {
                        if let ResponseBodyKind::Events { unread, .. } = &mut self.kind {
                            *unread = data;
                        }
                    }
                    None => {
                        self.kind = ResponseBodyKind::Over;
                        return Ok(None);
                    }
                },
            }
        }
    }

    async fn whole(&mut self) -> Result<Bytes, BrokenResponse> {
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        while let Some(data) = self.frame().await? {
            if first.is_empty() && joined.is_empty() {
                first = data;
                continue;
            }
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&data);
        }
        Ok(if joined.is_empty() {
            first
        } else {
            joined.freeze()
        })
    }

    /// Returns the next bytes; `None` at the end.
    async fn frame(&mut self) -> Result<Option<Bytes>, BrokenResponse> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| BrokenResponse::Lost(error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.size += data.len();
            if self.size > MAX_MESSAGE_BYTES {
                return Err(BrokenResponse::TooLarge);
            }
            if self.size > LARGE && self.held.is_none() {
                // The semaphore is never closed.
                self.held = self.room.acquire().await.ok();
            }
            return Ok(Some(data));
        }
        Ok(None)
    }
}
