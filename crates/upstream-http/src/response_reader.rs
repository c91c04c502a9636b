//! The body of one response as a sequence of messages, for JSON and for event streams.
//!
//! Small messages come whole. The result of a large response comes in pieces, once it is known to
//! answer the request, so that weir holds as little of it as possible. Other messages are
//! dispatched elsewhere.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use weir_core::hold::HoldShare;
use weir_core::telemetry::UpstreamMeter;
use weir_http_client::HttpResponseBody;
use weir_upstream_core::response_limits::ResponseLimits;
use weir_wire::sse::{self, SseItem};

use crate::idle_events::IdleEvents;
use crate::message_collector::{MessageBound, MessageCollector, ReleaseRule};
use crate::response_part::{ResponsePart, ResponseReadError};

/// The decoder of an event stream.
#[derive(Debug)]
struct EventStreamState {
    decoder: sse::SseDecoder,
    idle: IdleEvents,
    /// The size of the body part that is being decoded.
    part: usize,
    /// True once the first event of HTTP+SSE came, which names the URL for messages.
    has_endpoint: bool,
    /// True for the rest of an event that is no message.
    is_skipping: bool,
}

/// A response that is being read. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    body: HttpResponseBody,
    /// Present for an event stream.
    events: Option<Box<EventStreamState>>,
    rest: Bytes,
    message: MessageCollector,
    parts: VecDeque<ResponsePart>,
    room: usize,
    max_bytes: usize,
    over: bool,
    meter: Arc<UpstreamMeter>,
    hold: Arc<HoldShare>,
}

impl ResponseReader {
    /// Reads a JSON body: one message.
    pub(crate) fn json(body: HttpResponseBody, limits: &ResponseLimits) -> Self {
        Self::new(body, None, limits)
    }

    /// Reads an event stream: many messages.
    pub(crate) fn events(body: HttpResponseBody, limits: &ResponseLimits) -> Self {
        let caps = sse::SseCaps {
            max_event: limits.max_reply as u64,
            ..sse::SseCaps::default()
        };
        let events = EventStreamState {
            decoder: sse::SseDecoder::new(caps),
            idle: IdleEvents::new(),
            part: 0,
            has_endpoint: false,
            is_skipping: false,
        };
        Self::new(body, Some(Box::new(events)), limits)
    }

    fn new(
        body: HttpResponseBody,
        events: Option<Box<EventStreamState>>,
        limits: &ResponseLimits,
    ) -> Self {
        let (most, meter, hold) = (
            limits.max_reply,
            limits.meter.clone(),
            limits.hold_share.clone(),
        );
        let message = MessageCollector::new(MessageBound {
            most,
            hold: hold.per_call(),
        });
        let (rest, parts, over) = (Bytes::new(), VecDeque::new(), false);
        Self {
            body,
            events,
            rest,
            message,
            parts,
            room: most,
            max_bytes: most,
            over,
            meter,
            hold,
        }
    }

    /// Lets the result of a large response to this request go on as soon as allowed. Without a
    /// release every result is held.
    pub(crate) fn with_release(mut self, release: ReleaseRule) -> Self {
        self.message.release(release);
        self
    }

    /// Keeps the connection from being used again, because the server's messages on it are about
    /// other requests.
    pub(crate) fn retire_connection(&mut self) {
        self.body.retire_connection();
    }

    /// Bounds single events, not their sum: for a stream that lives as long as the connection.
    pub(crate) fn without_total_bound(mut self) -> Self {
        self.room = usize::MAX;
        self
    }

    /// True for an event stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.events.is_some()
    }

    /// Polls the next part; absent at the end of the body.
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<ResponsePart>, ResponseReadError>> {
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
            self.message.drained();
            // Without memory for held bytes the server's body is not read on.
            ready!(self.message.poll_room(&self.hold, cx));
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.meter.received(data.len());
                        self.room = self
                            .room
                            .checked_sub(data.len())
                            .ok_or(ResponseReadError::TooLarge(self.max_bytes))?;
                        if let Some(events) = &mut self.events {
                            events.part = data.len();
                        }
                        self.rest = data;
                    }
                    // With a known length, the end needs no further poll and no further wake from
                    // the connection.
                    if self.body.is_end_stream() {
                        self.decode()?;
                        self.ended()?;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(ResponseReadError::Lost(error))),
                None => self.ended()?,
            }
        }
    }

    /// Handles the body's end.
    fn ended(&mut self) -> Result<(), ResponseReadError> {
        self.over = true;
        // An unfinished event does not count; an unfinished JSON body is malformed.
        if self.events.is_none() {
            self.message.finish(&mut self.parts)
        } else {
            Ok(())
        }
    }

    /// Waits for the first message. True if the first event of HTTP+SSE (2024-11-05) comes before it:
    /// then the stream is that of such a server, which answers no messages here.
    pub(crate) async fn is_of_http_sse(&mut self) -> Result<bool, ResponseReadError> {
        let mut marks = VecDeque::new();
        let found = std::future::poll_fn(|cx| {
            loop {
                let polled = self.poll_part(cx);
                if self
                    .events
                    .as_ref()
                    .is_some_and(|events| events.has_endpoint)
                {
                    return Poll::Ready(Ok(true));
                }
                let part = match ready!(polled) {
                    // The marks say if the stream can be resumed.
                    Err(ResponseReadError::Lost(_)) if !marks.is_empty() => {
                        self.over = true;
                        None
                    }
                    polled => polled?,
                };
                match part {
                    Some(mark @ ResponsePart::Mark { .. }) => marks.push_back(mark),
                    Some(part) => {
                        marks.push_back(part);
                        return Poll::Ready(Ok(false));
                    }
                    None => return Poll::Ready(Ok(false)),
                }
            }
        });
        let found = found.await;
        marks.append(&mut self.parts);
        self.parts = marks;
        found
    }

    /// Reads the next part.
    pub(crate) async fn part(&mut self) -> Result<Option<ResponsePart>, ResponseReadError> {
        std::future::poll_fn(|cx| self.poll_part(cx)).await
    }

    fn decode(&mut self) -> Result<(), ResponseReadError> {
        let Some(EventStreamState {
            decoder,
            idle,
            part,
            has_endpoint,
            is_skipping,
        }) = self.events.as_deref_mut()
        else {
            return self
                .message
                .feed(&std::mem::take(&mut self.rest), &mut self.parts);
        };
        while self.parts.is_empty() {
            let item = decoder.feed(&mut self.rest).map_err(|error| match error {
                sse::SseError::EventTooLarge => ResponseReadError::TooLarge(self.max_bytes),
                sse::SseError::FieldTooLong | sse::SseError::NotUtf8 => {
                    ResponseReadError::Malformed(error.to_string())
                }
            })?;
            match item {
                None => {
                    return idle
                        .count_bytes(std::mem::take(part))
                        .map_err(|flood| ResponseReadError::Malformed(flood.to_string()));
                }
                // Events of other types, such as a server's heartbeat, are no messages.
                Some(SseItem::Data(_)) if !sse::is_message(decoder.event()) => {}
                Some(SseItem::Data(_)) if *is_skipping => idle.note_data(),
                Some(SseItem::Data(chunk)) => {
                    idle.note_data();
                    match self.message.feed(&chunk, &mut self.parts) {
                        Err(ResponseReadError::Malformed(_)) if self.message.may_be_skipped() => {
                            self.message.discard();
                            *is_skipping = true;
                        }
                        fed => fed?,
                    }
                }
                Some(SseItem::End { id, .. }) if std::mem::take(is_skipping) => {
                    self.parts.push_back(ResponsePart::Unreadable);
                    if id.is_some() {
                        self.parts.push_back(ResponsePart::Mark { id, retry: None });
                    }
                }
                Some(SseItem::End {
                    id,
                    has_data,
                    event,
                }) => {
                    if !sse::is_message(event.as_deref()) {
                        self.message.discard_whole();
                        *has_endpoint |= has_data && event.as_deref() == Some("endpoint");
                    }
                    // An event with empty data opens a stream that can be resumed, and is no
                    // message.
                    if has_data && !self.message.is_blank() {
                        let may_be_skipped = self.message.may_be_skipped();
                        match self.message.finish(&mut self.parts) {
                            Err(ResponseReadError::Malformed(_)) if may_be_skipped => {
                                self.parts.push_back(ResponsePart::Unreadable);
                            }
                            finished => finished?,
                        }
                    } else {
                        idle.count_item();
                    }
                    if id.is_some() {
                        self.parts.push_back(ResponsePart::Mark { id, retry: None });
                    }
                }
                Some(SseItem::Retry(millis)) => {
                    idle.count_item();
                    self.parts.push_back(ResponsePart::Mark {
                        id: None,
                        retry: Some(millis),
                    });
                }
                Some(SseItem::Comment) => idle.count_item(),
            }
        }
        Ok(())
    }
}
