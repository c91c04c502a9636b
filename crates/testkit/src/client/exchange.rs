//! One HTTP exchange: the head at once, the messages as they come, and the connection closed by
//! dropping it.

use std::collections::VecDeque;
use std::io;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use weir_wire::Revision;

use crate::client::sse_event::{SseEvent, SseEventReader};
use crate::emitted_messages;
use crate::message_recorder::{MessageRecorder, RecordedMessage};
use crate::owned_task::OwnedTask;
use crate::schemas::MessageSender;

/// An answer after its head has arrived. Dropping it closes the connection, like a client that
/// vanishes. With pooled connections it closes an HTTP/1.1 connection that is not read to the end,
/// and resets an HTTP/2 stream.
#[derive(Debug)]
pub struct HttpExchange {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers of the answer.
    pub headers: HeaderMap,
    body: Incoming,
    reader: SseEventReader,
    pending: VecDeque<Value>,
    whole: BytesMut,
    events: Vec<SseEvent>,
    ended: bool,
    recorder: Option<(Option<MessageRecorder>, Revision, String)>,
    _connection: Option<OwnedTask>,
}

/// An answer read to its end.
#[derive(Clone, Debug)]
pub struct ClientAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers of the answer.
    pub headers: HeaderMap,
    /// Every JSON-RPC message, in order; the items of a batch one by one. Empty if the body is not
    /// JSON.
    pub messages: Vec<Value>,
    /// Every server-sent event, comments too; empty for a JSON body.
    pub events: Vec<SseEvent>,
    /// The body as it came.
    pub body: Bytes,
}

impl HttpExchange {
    pub(super) fn new(response: Response<Incoming>, connection: Option<OwnedTask>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body,
            reader: SseEventReader::default(),
            pending: VecDeque::new(),
            whole: BytesMut::new(),
            events: Vec::new(),
            ended: false,
            recorder: None,
            _connection: connection,
        }
    }

    /// Keeps every message as part of the answer to `method`, and adds it to `recorder`.
    pub(super) fn recorded(
        mut self,
        recorder: Option<MessageRecorder>,
        revision: Revision,
        method: &str,
    ) -> Self {
        self.recorder = Some((recorder, revision, method.to_owned()));
        self
    }

    /// Reports if the answer is a stream of server-sent events.
    pub fn is_stream(&self) -> bool {
        content_type(&self.headers).is_some_and(|media| media.starts_with("text/event-stream"))
    }

    /// Returns the next JSON-RPC message, or no message at the end. Errors if the connection breaks
    /// or an event is not JSON. Dropping the future is safe: no message is lost.
    pub async fn next_message(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(message) = self.pending.pop_front() {
                return Ok(Some(message));
            }
            if !self.is_stream() {
                while self.read().await? {}
                if self.whole.is_empty() || !self.take_json()? {
                    return Ok(None);
                }
                continue;
            }
            match self.next_event().await? {
                Some(event) if event.data.is_empty() => {}
                Some(event) => self.queue(&event.data)?,
                None => return Ok(None),
            }
        }
    }

    /// Returns the next server-sent event, comments alone included, or no event at the end. Do not
    /// mix with [`HttpExchange::next_message`]. Errors if the connection breaks.
    pub async fn next_event(&mut self) -> io::Result<Option<SseEvent>> {
        loop {
            if let Some(event) = self.reader.next() {
                self.events.push(event.clone());
                return Ok(Some(event));
            }
            if !self.read().await? {
                if self.reader.remainder().is_empty() {
                    return Ok(None);
                }
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the stream ended inside an event",
                ));
            }
        }
    }

    /// Reads on until the end. Errors if the connection breaks before it.
    pub async fn finish(mut self) -> io::Result<ClientAnswer> {
        let mut messages = Vec::new();
        if self.is_stream() || is_json(&self.headers) {
            while let Some(message) = self.next_message().await? {
                messages.push(message);
            }
        } else {
            while self.read().await? {}
        }
        let body = self.whole.freeze();
        Ok(ClientAnswer {
            status: self.status,
            headers: self.headers,
            messages,
            events: self.events,
            body,
        })
    }

    /// Reads the next piece of the body without parsing it; no piece at the end.
    pub async fn next_bytes(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let Some(data) = self.next_bytes().await? else {
            self.ended = true;
            return Ok(false);
        };
        if self.is_stream() {
            self.reader.push(&data);
        }
        self.whole.extend_from_slice(&data);
        Ok(true)
    }

    fn take_json(&mut self) -> io::Result<bool> {
        if self.events.is_empty() && is_json(&self.headers) {
            let text = String::from_utf8(self.whole.to_vec()).map_err(io::Error::other)?;
            // A JSON body is read once: this event marks it as read.
            self.events.push(SseEvent {
                data: text.clone(),
                ..SseEvent::default()
            });
            self.queue(&text)?;
            return Ok(!self.pending.is_empty());
        }
        Ok(false)
    }

    fn queue(&mut self, text: &str) -> io::Result<()> {
        let messages = match serde_json::from_str(text)? {
            Value::Array(items) => items,
            message @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => vec![message],
        };
        if let Some((recorder, revision, answered)) = &self.recorder {
            for message in &messages {
                emitted_messages::record_message(
                    MessageSender::Server,
                    *revision,
                    answered,
                    message,
                );
                let Some(recorder) = recorder else { continue };
                recorder.add(RecordedMessage {
                    revision: *revision,
                    answered_method: answered.clone(),
                    message: message.clone(),
                });
            }
        }
        self.pending.extend(messages);
        Ok(())
    }
}

impl ClientAnswer {
    /// The last message: the response to a request.
    ///
    /// # Panics
    /// There is no message; the panic shows the body.
    pub fn last(&self) -> &Value {
        self.messages
            .last()
            .unwrap_or_else(|| panic!("no JSON-RPC message in {} {:?}", self.status, self.body))
    }

    /// The result of the answer.
    ///
    /// # Panics
    /// The answer is not a result; the panic shows it.
    pub fn result(&self) -> &Value {
        self.last()
            .get("result")
            .unwrap_or_else(|| panic!("not a result: {} {}", self.status, self.last()))
    }

    /// The error of the answer.
    ///
    /// # Panics
    /// The answer is not an error; the panic shows it.
    pub fn error(&self) -> &Value {
        self.last()
            .get("error")
            .unwrap_or_else(|| panic!("not an error: {} {}", self.status, self.last()))
    }

    /// The code of the error.
    ///
    /// # Panics
    /// The answer is not an error.
    pub fn code(&self) -> i64 {
        self.error()["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("an error without a code: {}", self.last()))
    }

    /// The text of the first content block of a tool's result.
    ///
    /// # Panics
    /// The answer has no such text.
    pub fn text(&self) -> &str {
        self.result()["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text in {}", self.last()))
    }

    /// The notifications of this method that came before the answer.
    pub fn notes<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Value> {
        self.messages
            .iter()
            .filter(move |message| message["method"] == method)
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(http::header::CONTENT_TYPE)?.to_str().ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    content_type(headers).is_some_and(|media| media.starts_with("application/json"))
}
