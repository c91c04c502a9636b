//! JSON-RPC messages: the envelope read once, all members inside left as bytes.
//!
//! A message is classified as request, notification or response by its members alone; this module
//! does not interpret methods or results. Parsing touches each byte once ([`crate::scan`]) and
//! copies no bytes.

use std::ops::Range;

use bytes::Bytes;

use crate::error_code;
use crate::error_object::ErrorObject;
use crate::id::IdError;
use crate::id::RequestId;
use crate::method::MethodName;
use crate::params::params_error::ParamsError;
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::scan::scan_error::ScanError;

/// The content of one HTTP body, SSE event or stdio line.
#[derive(Clone, Debug)]
pub enum IncomingMessage {
    /// A single message.
    One(Message),
    /// A batch (2025-03-26): each item unparsed, so that one bad item does not spoil the others;
    /// give each to [`Message::parse`].
    Batch(Vec<Bytes>),
}

/// A JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// A message that wants a response.
    Request(Request),
    /// A message that wants no response.
    Notification(Notification),
    /// A response.
    Response(Response),
}

/// A message that wants a response.
#[derive(Clone, Debug)]
pub struct Request {
    /// The id, echoed in the response.
    pub id: RequestId,
    /// The called method.
    pub method: MethodName,
    /// The `params` object, as it came.
    pub params: Option<Bytes>,
    /// The whole message, as it came.
    pub raw: Bytes,
}

/// A message that wants no response.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The method's name.
    pub method: MethodName,
    /// The `params` object, as it came.
    pub params: Option<Bytes>,
    /// The whole message, as it came.
    pub raw: Bytes,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The id of the request; absent only for an error to a request with an unreadable id.
    pub id: Option<RequestId>,
    /// The `result` object or the `error` object, as it came.
    pub outcome: Result<Bytes, Bytes>,
}

impl Response {
    /// Returns the error object in parts, if this is an error.
    ///
    /// # Errors
    /// The error object has no integer `code` or no string `message`.
    pub fn error(&self) -> Option<Result<ErrorObject, MessageError>> {
        self.outcome.as_ref().err().map(|raw| {
            ErrorObject::parse(raw)
                .map_err(|error| MessageError::invalid(error.to_string(), self.id.clone()))
        })
    }
}

/// The reason to refuse a message, with all that its error response needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct MessageError {
    /// [`error_code::PARSE_ERROR`], [`error_code::INVALID_REQUEST`], or
    /// [`error_code::INVALID_PARAMS`] for a name that differs from a known one in case alone.
    pub code: i64,
    /// The fault and the correction; safe to show to the peer.
    pub text: String,
    /// The id, if it could be read.
    pub id: Option<RequestId>,
}

impl MessageError {
    fn invalid(text: impl Into<String>, id: Option<RequestId>) -> Self {
        Self {
            code: error_code::INVALID_REQUEST,
            text: text.into(),
            id,
        }
    }

    fn case_variant(name: &'static str, id: Option<RequestId>) -> Self {
        Self {
            code: error_code::INVALID_PARAMS,
            text: ParamsError::case_variant(name).to_string(),
            id,
        }
    }

    fn scan(error: ScanError, raw: &[u8]) -> Self {
        let code = if error.kind.is_json() {
            error_code::INVALID_REQUEST
        } else {
            error_code::PARSE_ERROR
        };
        // A text that breaks only a limit of weir still has a readable id, unless the id itself is
        // the duplicate.
        let id = error.kind.is_json().then(|| sole_id(raw)).flatten();
        Self {
            code,
            text: error.to_string(),
            id,
        }
    }
}

impl IncomingMessage {
    /// Reads a whole body. Upstream replies take [`JsonLimits::upstream`].
    ///
    /// # Errors
    /// -32700 for text that is not JSON; -32600 for JSON beyond `limits`, an empty or too long
    /// batch, or a message with a wrong shape.
    pub fn parse(raw: Bytes, limits: &JsonLimits) -> Result<Self, MessageError> {
        if scan::trim(&raw).first() != Some(&b'[') {
            return Message::parse(raw, limits).map(Self::One);
        }
        scan::check_grammar(&raw, limits).map_err(|error| MessageError::scan(error, &raw))?;
        let items: Vec<Bytes> = scan::elements(&raw)
            .take(limits.max_batch + 1)
            .map(|range| raw.slice(range))
            .collect();
        if items.is_empty() {
            return Err(MessageError::invalid(
                "the batch is empty: send at least one message",
                None,
            ));
        }
        if items.len() > limits.max_batch {
            let text = format!(
                "the batch has more than {} messages: send smaller ones",
                limits.max_batch
            );
            return Err(MessageError::invalid(text, None));
        }
        Ok(Self::Batch(items))
    }
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// As [`IncomingMessage::parse`]; an array is refused.
    pub fn parse(raw: Bytes, limits: &JsonLimits) -> Result<Self, MessageError> {
        let mut envelope = EnvelopeMembers {
            ignores_variants: limits.ignore_case_variants,
            ..EnvelopeMembers::default()
        };
        let base = raw.as_ref();
        scan::check_members(base, limits, |member| envelope.record_member(&member))
            .map_err(|error| MessageError::scan(error, base))?;
        if !scan::is_object(base) {
            return Err(MessageError::invalid(
                "the message is not a JSON object: send one JSON-RPC message",
                None,
            ));
        }
        if limits.null_params
            && envelope
                .params
                .as_ref()
                .is_some_and(|range| &base[range.clone()] == b"null")
        {
            envelope.params = None;
        }
        envelope.into_message(raw)
    }
}

/// The members of the envelope.
const NAMES: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The positions of the members that JSON-RPC defines. All others are unknown and ignored; a
/// client's unknown names must not differ from these in case alone.
#[derive(Default)]
struct EnvelopeMembers {
    ignores_variants: bool,
    /// The known member that another member's name differs from in case alone.
    variant: Option<&'static str>,
    jsonrpc: Option<Range<usize>>,
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
}

impl EnvelopeMembers {
    fn record_member(&mut self, member: &scan::JsonMember<'_>) {
        let slots = [
            &mut self.jsonrpc,
            &mut self.id,
            &mut self.method,
            &mut self.params,
            &mut self.result,
            &mut self.error,
        ];
        if let Some((_, slot)) = NAMES
            .into_iter()
            .zip(slots)
            .find(|(name, _)| member.key.eq_str(name))
        {
            *slot = Some(member.value.clone());
        } else if !self.ignores_variants && self.variant.is_none() {
            self.variant = member.key.case_variant_of(&NAMES);
        }
    }

    fn into_message(self, raw: Bytes) -> Result<Message, MessageError> {
        let id = self
            .id
            .clone()
            .map(|range| RequestId::from_json(&raw[range]))
            .transpose();
        let known = id.as_ref().ok().cloned().flatten();
        if let Some(name) = self.variant {
            return Err(MessageError::case_variant(name, known));
        }
        let refuse = |text: &str| Err(MessageError::invalid(text, known.clone()));
        let is_version_2 = self
            .jsonrpc
            .clone()
            .is_some_and(|range| scan::is_string(&raw[range], "2.0"));
        if !is_version_2 {
            return refuse("`jsonrpc` is not \"2.0\": send JSON-RPC 2.0");
        }
        match (&self.method, &self.result, &self.error) {
            (Some(_), None, None) => self.call(id, raw),
            (None, Some(_), None) | (None, None, Some(_)) => self.response(id, &raw),
            (None, None, None) => {
                refuse("the message has neither `method` nor `result` nor `error`")
            }
            _ => refuse(
                "the message has more than one of `method`, `result` and `error`: send one of them",
            ),
        }
    }

    fn call(
        self,
        id: Result<Option<RequestId>, IdError>,
        raw: Bytes,
    ) -> Result<Message, MessageError> {
        let id = id.map_err(|error| MessageError::invalid(error.to_string(), None))?;
        let refuse = |text: &str| MessageError::invalid(text, id.clone());
        let name = self
            .method
            .and_then(|range| scan::string(&raw[range]).map(|name| MethodName::new(&name)));
        let method = name.ok_or_else(|| refuse("`method` is not a string"))?;
        let params = self.params.map(|range| raw.slice(range));
        if params
            .as_ref()
            .is_some_and(|params| !scan::is_object(params))
        {
            return Err(refuse(
                "`params` is not an object: send an object or leave it out",
            ));
        }
        Ok(match id {
            Some(id) => Message::Request(Request {
                id,
                method,
                params,
                raw,
            }),
            None => Message::Notification(Notification {
                method,
                params,
                raw,
            }),
        })
    }

    fn response(
        self,
        id: Result<Option<RequestId>, IdError>,
        raw: &Bytes,
    ) -> Result<Message, MessageError> {
        let id = match id {
            // JSON-RPC answers an unreadable request with a null id.
            Err(IdError::Null) if self.error.is_some() => None,
            Err(error) => return Err(MessageError::invalid(error.to_string(), None)),
            Ok(id) => id,
        };
        let outcome = match (self.result, self.error) {
            (Some(_), _) if id.is_none() => {
                return Err(MessageError::invalid("the response has no `id`", None));
            }
            (Some(range), _) => Ok(raw.slice(range)),
            (None, Some(range)) => Err(raw.slice(range)),
            (None, None) => {
                return Err(MessageError::invalid(
                    "the response has neither `result` nor `error`",
                    id,
                ));
            }
        };
        let (Ok(value) | Err(value)) = &outcome;
        if !scan::is_object(value) {
            return Err(MessageError::invalid(
                "`result` or `error` is not an object",
                id,
            ));
        }
        Ok(Message::Response(Response { id, outcome }))
    }
}

/// Returns the id of JSON that failed a limit, if there is exactly one. The text behind the failure
/// was not checked. An id from there is checked by itself, because it goes into the response as it
/// is.
fn sole_id(raw: &[u8]) -> Option<RequestId> {
    let mut ids = scan::members(raw).filter(|member| member.key.eq_str("id"));
    let id = ids.next()?;
    let text = &raw[id.value];
    let is_sole = ids.next().is_none() && scan::check_grammar(text, &JsonLimits::default()).is_ok();
    is_sole.then(|| RequestId::from_json(text).ok()).flatten()
}

#[cfg(test)]
mod tests;
