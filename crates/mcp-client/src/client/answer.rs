//! Reading an answer: one JSON message, or a stream of them that ends with the response.

use std::collections::VecDeque;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;
use weir_wire::sse::{self, DecodedEvent, EventDecoder, ResumePoint, SseCaps};
use weir_wire::{IncomingMessage, JsonLimits, Message, Method, Notification, Request, RequestId};

use crate::client::error::ClientError;
use crate::client::no_mcp;
use crate::client::transport::TransportResponse;

/// The most of one answer a terminal is for.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A notification beside the answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// `notifications/progress`.
    Progress {
        /// How far.
        progress: f64,
        /// Of how much.
        total: Option<f64>,
        /// In words.
        message: Option<String>,
    },
    /// `notifications/message`.
    Log {
        /// How bad.
        level: String,
        /// What.
        text: String,
    },
    /// The list of tools changed.
    Changed,
    /// Anything else.
    Other,
}

/// A message beside the answer.
#[derive(Debug)]
pub(super) enum InterimMessage {
    /// A notification.
    Notification(Note),
    /// A request of a legacy server, which waits for its answer.
    Request(Request),
}

/// An answer as it arrives.
#[derive(Debug)]
pub struct Answer {
    response: TransportResponse,
    id: RequestId,
    reader: Reader,
    waiting: VecDeque<Message>,
    result: Option<Result<Value, ClientError>>,
    /// The point at which the stream is resumed if it ends before the result.
    point: ResumePoint,
    /// The reason for the end of a stream that can be resumed.
    lost: Option<String>,
}

#[derive(Debug)]
enum Reader {
    Json(Vec<u8>),
    Stream(Box<EventDecoder>),
    Over,
}

impl Answer {
    pub(super) fn new(response: TransportResponse, id: RequestId) -> Self {
        let reader = match response.is_stream() {
            true => Reader::Stream(Box::new(EventDecoder::new(SseCaps::default()))),
            false => Reader::Json(Vec::new()),
        };
        Self {
            response,
            id,
            reader,
            waiting: VecDeque::new(),
            result: None,
            point: ResumePoint::default(),
            lost: None,
        }
    }

    /// The point at which the stream is resumed; absent if the result has arrived, or the server
    /// gave its events no ids.
    pub(super) fn resume_point(&self) -> Option<&ResumePoint> {
        let is_resumable = self.result.is_none() && self.point.last_event().is_some();
        is_resumable.then_some(&self.point)
    }

    /// Goes on with another stream of the same answer.
    pub(super) fn continue_with(&mut self, response: TransportResponse) {
        self.response = response;
        self.reader = Reader::Stream(Box::new(EventDecoder::new(SseCaps::default())));
        self.lost = None;
    }

    /// Returns the result, after the end.
    pub(super) fn into_result(mut self) -> Result<Value, ClientError> {
        match self.result.take() {
            Some(result) => result,
            None if let Some(why) = self.lost.take() => Err(self.not_mcp(why)),
            None if self.response.status().is_success() => Err(self
                .not_mcp("the answer ended before its result: the server or a proxy cut it off")),
            None => Err(self.no_mcp(b"")),
        }
    }

    /// Returns the next message beside the answer; `None` after the answer or the end of the
    /// stream. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<InterimMessage>, ClientError> {
        loop {
            while let Some(message) = self.waiting.pop_front() {
                match message {
                    Message::Notification(told) => {
                        return Ok(Some(InterimMessage::Notification(note(&told))));
                    }
                    Message::Request(asked) => {
                        return Ok(Some(InterimMessage::Request(asked)));
                    }
                    Message::Response(response)
                        if response
                            .id
                            .as_ref()
                            .is_none_or(|id| id.echoed_number() == self.id.echoed_number()) =>
                    {
                        self.result = Some(outcome(&response));
                        self.reader = Reader::Over;
                        return Ok(None);
                    }
                    Message::Response(_) => {}
                }
            }
            if matches!(self.reader, Reader::Over) {
                return Ok(None);
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Result<(), ClientError> {
        let frame = self.response.inner.body_mut().frame().await;
        let chunk = match frame {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => {
                let why = format!(
                    "the connection was lost during the answer: {}",
                    weir_core::chain(&error)
                );
                if self.resume_point().is_none() {
                    return Err(self.not_mcp(why));
                }
                self.lost = Some(why);
                self.reader = Reader::Over;
                return Ok(());
            }
            None => return self.end(),
        };
        match &mut self.reader {
            Reader::Json(body) => {
                body.extend_from_slice(&chunk);
                if body.len() > MAX_ANSWER_BYTES {
                    return Err(self.not_mcp("its answer is too large to show"));
                }
            }
            Reader::Stream(decoder) => {
                let mut chunk = chunk;
                let mut events = Vec::new();
                loop {
                    match decoder.feed(&mut chunk) {
                        Ok(Some(DecodedEvent::Message { event, id, data })) => {
                            self.point.record_mark(id, None);
                            if sse::is_message(event.as_deref()) {
                                events.push(data);
                            }
                        }
                        Ok(Some(DecodedEvent::Id(id))) => self.point.record_mark(Some(id), None),
                        Ok(Some(DecodedEvent::Retry(millis))) => {
                            self.point.record_mark(None, Some(millis));
                        }
                        Ok(Some(DecodedEvent::Comment)) => {}
                        Ok(None) => break,
                        Err(error) => return Err(self.not_mcp(error.to_string())),
                    }
                }
                for data in events {
                    self.take(&data)?;
                }
            }
            Reader::Over => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ClientError> {
        if let Reader::Json(body) = std::mem::replace(&mut self.reader, Reader::Over) {
            let body = Bytes::from(body);
            if !body.trim_ascii().is_empty() {
                return self.take(&body);
            }
        }
        Ok(())
    }

    fn take(&mut self, raw: &Bytes) -> Result<(), ClientError> {
        if raw.is_empty() {
            // An event without data opens a stream that can be resumed; only its id counts.
            return Ok(());
        }
        let limits = JsonLimits::upstream();
        let read =
            IncomingMessage::parse(raw.clone(), &limits).and_then(|incoming| match incoming {
                IncomingMessage::One(message) => Ok(vec![message]),
                IncomingMessage::Batch(items) => items
                    .into_iter()
                    .map(|item| Message::parse(item, &limits))
                    .collect(),
            });
        match read {
            Ok(messages) => {
                self.waiting.extend(messages);
                Ok(())
            }
            Err(_) => Err(self.no_mcp(raw)),
        }
    }

    fn no_mcp(&self, body: &[u8]) -> ClientError {
        let TransportResponse { url, inner } = &self.response;
        let why = no_mcp::explain(url, inner.status(), inner.headers(), body);
        if no_mcp::is_busy(inner.status()) {
            let url = url.clone();
            return ClientError::Busy { url, why };
        }
        self.not_mcp(why)
    }

    fn not_mcp(&self, why: impl Into<String>) -> ClientError {
        ClientError::NotMcp {
            url: self.response.url.clone(),
            why: why.into(),
        }
    }
}

fn outcome(response: &weir_wire::Response) -> Result<Value, ClientError> {
    match &response.outcome {
        Ok(result) => serde_json::from_slice(result)
            .map_err(|error| refused(0, format!("its result cannot be read: {error}"))),
        Err(_) => match response.error() {
            Some(Ok(error)) => {
                let data = error
                    .data
                    .as_ref()
                    .and_then(|data| serde_json::from_slice(data).ok());
                Err(ClientError::Refused {
                    code: error.code,
                    message: error.message,
                    data: data.unwrap_or_default(),
                })
            }
            _ => Err(refused(0, "an error without code or message".to_owned())),
        },
    }
}

fn refused(code: i64, message: String) -> ClientError {
    ClientError::Refused {
        code,
        message,
        data: Value::Null,
    }
}

fn note(notification: &Notification) -> Note {
    let params: Value = notification
        .params
        .as_ref()
        .and_then(|params| serde_json::from_slice(params).ok())
        .unwrap_or_default();
    match notification.method.known() {
        Some(Method::Progress) => Note::Progress {
            progress: params["progress"].as_f64().unwrap_or_default(),
            total: params["total"].as_f64(),
            message: params["message"].as_str().map(str::to_owned),
        },
        Some(Method::LogMessage) => Note::Log {
            level: params["level"].as_str().unwrap_or("info").to_owned(),
            text: match params["data"].as_str() {
                Some(text) => text.to_owned(),
                None => params["data"].to_string(),
            },
        },
        Some(Method::ToolsListChanged) => Note::Changed,
        _ => Note::Other,
    }
}
