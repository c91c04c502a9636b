//! Takes the `result` out of one large JSON-RPC response while its bytes pass.
//!
//! Most replies are small, and a few are huge. [`ReplySplitter`] emits the result's bytes as they
//! come, so that 50 MiB can pass in bounded memory, and shows the members read so far: the
//! response's id and the result's type. Members come in any order, so either may be known only at
//! the end; the caller decides if bytes may go on before that. The members that decide the client's
//! handling of a result ([`WITHHELD`]) are never emitted with the others but at the end, when all
//! is known.

mod withheld_members;

use bytes::Bytes;

use crate::id::RequestId;
use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::kept_bytes::KeptBytes;
use crate::message::{Message, MessageError, Response};
use crate::scan::json_limits::JsonLimits;
use crate::scan::json_members::MemberKey;
use crate::scan::scan_error::ScanError;
use crate::utf8::Utf8Checker;
use withheld_members::{WithheldMembers, duplicate};

pub use withheld_members::WITHHELD;

/// Bounds of a splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitCaps {
    /// The most bytes that are kept of a message beside the emitted bytes of its result.
    pub max_held: usize,
    /// The most bytes of a message at all.
    pub max_total: u64,
    /// Depth, tokens, numbers.
    pub limits: JsonLimits,
}

impl Default for SplitCaps {
    fn default() -> Self {
        Self {
            max_held: 4 * 1024 * 1024,
            max_total: 64 * 1024 * 1024,
            limits: JsonLimits::upstream(),
        }
    }
}

/// A message that is over.
#[derive(Clone, Debug)]
pub enum SplitMessage {
    /// A message without a `result` object, with no bytes emitted: parse it with
    /// [`Message::parse`].
    Whole(Bytes),
    /// A response, and the bytes behind the emitted part of its result.
    Response(Box<ResponseEnd>),
}

/// The end of a response after its result was emitted in pieces.
#[derive(Clone, Debug)]
pub struct ResponseEnd {
    /// The response. Its outcome is `Ok` of an empty object.
    pub response: Response,
    /// The result's type as it came.
    pub result_type: Option<Bytes>,
    /// The withheld members and the closing brace: the last bytes of the result.
    pub rest: Bytes,
}

/// The reasons to refuse a message. Result bytes emitted before belong to a broken response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Not JSON, or beyond the limits.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// JSON, but not a JSON-RPC response.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Too large, and not because of its `result`.
    #[error("the message holds more than is kept of one")]
    TooLong,
    /// A large message with a `result` and another kind's members.
    #[error("the message is not a response")]
    NotAResponse,
}

/// Splits one message. Feed it with [`ReplySplitter::feed`], end it with [`ReplySplitter::finish`].
#[derive(Debug)]
pub struct ReplySplitter {
    caps: SplitCaps,
    lexer: JsonLexer,
    utf8: Utf8Checker,
    /// All bytes but the result, which is replaced by an empty object.
    envelope: KeptBytes,
    /// The key being read, up to the length of a known one.
    key: Option<Vec<u8>>,
    member: ReplyMember,
    /// The text of the id while it is read.
    id_text: Option<Vec<u8>>,
    id: Option<Option<RequestId>>,
    result: Option<WithheldMembers>,
    in_result: bool,
}

/// The known member of the message that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyMember {
    Result,
    Id,
    Other,
}

impl ReplySplitter {
    /// A splitter at the start of a message.
    #[must_use]
    pub fn new(caps: SplitCaps) -> Self {
        Self {
            caps,
            lexer: JsonLexer::new(caps.limits, 1),
            utf8: Utf8Checker::default(),
            envelope: KeptBytes::default(),
            key: None,
            member: ReplyMember::Other,
            id_text: None,
            id: None,
            result: None,
            in_result: false,
        }
    }

    /// The message's id, once it was read; `Some(None)` for an invalid one.
    #[must_use]
    pub fn id(&self) -> Option<Option<&RequestId>> {
        self.id.as_ref().map(Option::as_ref)
    }

    /// The result's type as it came, once it was read.
    #[must_use]
    pub fn result_type(&self) -> Option<&[u8]> {
        self.result.as_ref()?.result_type()
    }

    /// The count of kept bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.envelope.len() + self.result.as_ref().map_or(0, WithheldMembers::held)
    }

    /// Takes the next chunk; adds its part of the result to `out`.
    ///
    /// # Errors
    /// The message is malformed, too deep or too large.
    pub fn feed(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), SplitError> {
        self.utf8.feed(chunk)?;
        if self.lexer.offset() + chunk.len() as u64 > self.caps.max_total {
            return Err(SplitError::TooLong);
        }
        let (mut pos, mut kept_to) = (0, 0);
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            let range = pos..pos + consumed;
            pos = range.end;
            if let Some(result) = self.result.as_mut().filter(|_| self.in_result) {
                kept_to = pos;
                result.take(chunk, range, out);
                if let Some(event) = event {
                    result.handle_event(event, &self.lexer, chunk, out)?;
                    if event == LexerEvent::ValueEnd && self.lexer.depth() == 1 {
                        result.flush(chunk, out);
                        self.in_result = false;
                        self.member = ReplyMember::Other;
                        self.lexer.set_report(1);
                    }
                }
                continue;
            }
            self.read(&chunk[range]);
            if let Some(event) = event
                && self.handle_event(event)?
            {
                self.envelope.push(chunk.slice(kept_to..pos));
                self.envelope.push(Bytes::from_static(b"{}"));
                kept_to = pos;
            }
        }
        if let Some(result) = self.result.as_mut().filter(|_| self.in_result) {
            result.flush(chunk, out);
        }
        self.envelope.push(chunk.slice(kept_to..pos));
        if self.held() > self.caps.max_held {
            Err(SplitError::TooLong)
        } else {
            Ok(())
        }
    }

    /// Ends the message.
    ///
    /// # Errors
    /// The message is incomplete, or has a result and is not a JSON-RPC response.
    pub fn finish(mut self) -> Result<SplitMessage, SplitError> {
        self.utf8.finish()?;
        self.lexer.finish()?;
        let envelope = self.envelope.take();
        let Some(result) = self.result else {
            return Ok(SplitMessage::Whole(envelope));
        };
        // The kept bytes are the message with an empty result, so the ordinary rules check it.
        match Message::parse(envelope, &self.caps.limits)? {
            Message::Response(response) if response.outcome.is_ok() => {
                let result_type = result.result_type().map(Bytes::copy_from_slice);
                Ok(SplitMessage::Response(Box::new(ResponseEnd {
                    response,
                    result_type,
                    rest: result.rest(),
                })))
            }
            Message::Request(_) | Message::Notification(_) | Message::Response(_) => {
                Err(SplitError::NotAResponse)
            }
        }
    }

    /// Collects keys and the id.
    fn read(&mut self, bytes: &[u8]) {
        let held = self
            .key
            .as_mut()
            .map(|key| (key, MAX_KEY_BYTES))
            .or(self.id_text.as_mut().map(|id| (id, MAX_ID_BYTES)));
        if let Some((text, most)) = held {
            let room = most.saturating_sub(text.len());
            text.extend(bytes.iter().take(room));
        }
    }

    /// Takes an event outside of the result; true at the beginning of the result object.
    fn handle_event(&mut self, event: LexerEvent) -> Result<bool, SplitError> {
        let depth = self.lexer.depth();
        match event {
            LexerEvent::KeyStart => self.key = Some(Vec::new()),
            LexerEvent::KeyEnd => {
                let key = self.key.take().unwrap_or_default();
                let name = key.split_last().map(|(_, name)| MemberKey::new(name));
                let is = |wanted: &str| name.as_ref().is_some_and(|name| name.eq_str(wanted));
                self.member = if is("result") {
                    ReplyMember::Result
                } else if is("id") {
                    ReplyMember::Id
                } else {
                    ReplyMember::Other
                };
            }
            LexerEvent::ValueStart(b'{') if depth == 1 && self.member == ReplyMember::Result => {
                if self.result.is_some() {
                    return Err(duplicate(&self.lexer).into());
                }
                self.result = Some(WithheldMembers::default());
                self.in_result = true;
                self.lexer.set_report(2);
                return Ok(true);
            }
            LexerEvent::ValueStart(_) if depth == 1 && self.member == ReplyMember::Id => {
                self.id_text = Some(Vec::new())
            }
            LexerEvent::ValueEnd if depth == 1 => {
                if let Some(text) = self.id_text.take() {
                    if self.id.is_some() {
                        return Err(duplicate(&self.lexer).into());
                    }
                    self.id = Some(RequestId::from_json(&text).ok());
                }
                self.member = ReplyMember::Other;
            }
            LexerEvent::Open
            | LexerEvent::ValueStart(_)
            | LexerEvent::ValueEnd
            | LexerEvent::Closing => {}
        }
        Ok(false)
    }
}

/// The longest spelling of `result`, every letter escaped, with its closing quote and one byte to
/// tell longer keys apart.
const MAX_KEY_BYTES: usize = 6 * 6 + 2;
/// The most bytes kept of an id: weir's own are shorter, and a longer one is invalid when cut off.
const MAX_ID_BYTES: usize = 256;

#[cfg(test)]
mod tests;
