//! Taking the `result` out of one large JSON-RPC response while its bytes pass.
//!
//! Replies are small, except for the few that are huge. [`ReplySplitter`] gives the result's bytes
//! as they come, so that 50 MiB can pass in bounded memory, and says what it has seen of the
//! message so far: whose answer it is, and of which type. Members come in any order, so either may
//! be known only at the end; whether bytes may go on before that is the caller's decision. The
//! members that decide what a client does with a result ([`WITHHELD`]) are never given with the
//! others but at the end, when all is known.

mod withholding;

use bytes::{Bytes, BytesMut};

use crate::lexer::{Event, Lexer};
use crate::scan::{Key, Limits, ScanError, ScanErrorKind};
use crate::utf8::Utf8;
use crate::{Message, MessageError, RequestId, Response};
use withholding::Withholding;

/// The members of a result that are kept to its end.
pub const WITHHELD: [&str; 5] = [
    "resultType",
    "requestState",
    "inputRequests",
    "taskId",
    "_meta",
];

/// Bounds of a splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitCaps {
    /// The most bytes that are kept of a message beside what is given of its result.
    pub max_held: usize,
    /// The most bytes of a message at all.
    pub max_total: u64,
    /// Depth, tokens, numbers.
    pub limits: Limits,
}

impl Default for SplitCaps {
    fn default() -> Self {
        Self {
            max_held: 4 * 1024 * 1024,
            max_total: 64 * 1024 * 1024,
            limits: Limits::upstream(),
        }
    }
}

/// A message that is over.
#[derive(Clone, Debug)]
pub enum Split {
    /// A message without a `result` object, of which nothing was given: parse it with
    /// [`Message::parse`].
    Whole(Bytes),
    /// A response, and what belongs behind the bytes of its result that were given.
    Response(Box<ResponseEnd>),
}

/// The end of a response whose result was given in pieces.
#[derive(Clone, Debug)]
pub struct ResponseEnd {
    /// Whose answer it was. The outcome is `Ok` of an empty object.
    pub response: Response,
    /// The result's type as it came.
    pub result_type: Option<Bytes>,
    /// The withheld members and the closing brace: the last bytes of the result.
    pub rest: Bytes,
}

/// Why a message was refused. Result bytes given out before belong to a broken answer.
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
    /// A large message with a `result` that is something else besides.
    #[error("the message is not a response")]
    NotAResponse,
}

/// Splits one message. Feed it with [`ReplySplitter::feed`], end it with [`ReplySplitter::finish`].
#[derive(Debug)]
pub struct ReplySplitter {
    caps: SplitCaps,
    lexer: Lexer,
    utf8: Utf8,
    /// Everything but the result, in whose place stands an empty object.
    envelope: Kept,
    /// The key being read, as far as it can matter.
    key: Option<Vec<u8>>,
    member: Member,
    /// The text of the id while it is read.
    id_text: Option<Vec<u8>>,
    id: Option<Option<RequestId>>,
    result: Option<Withholding>,
    in_result: bool,
}

/// The member of the message that is being read, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
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
            lexer: Lexer::new(caps.limits, 1),
            utf8: Utf8::default(),
            envelope: Kept::default(),
            key: None,
            member: Member::Other,
            id_text: None,
            id: None,
            result: None,
            in_result: false,
        }
    }

    /// The message's id, once it was read; `Some(None)` for one that is none.
    #[must_use]
    pub fn id(&self) -> Option<Option<&RequestId>> {
        self.id.as_ref().map(Option::as_ref)
    }

    /// The result's type as it came, once it was read.
    #[must_use]
    pub fn result_type(&self) -> Option<&[u8]> {
        self.result.as_ref()?.result_type()
    }

    /// Bytes that are kept here.
    #[must_use]
    pub fn held(&self) -> usize {
        self.envelope.len() + self.result.as_ref().map_or(0, Withholding::held)
    }

    /// Takes the next chunk; adds to `out` what it has of the result.
    ///
    /// # Errors
    /// When the message is malformed, too deep or too large.
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
                    result.react(event, &self.lexer, chunk, out)?;
                    if event == Event::ValueEnd && self.lexer.depth() == 1 {
                        result.flush(chunk, out);
                        self.in_result = false;
                        self.member = Member::Other;
                        self.lexer.set_report(1);
                    }
                }
                continue;
            }
            self.read(&chunk[range]);
            if let Some(event) = event
                && self.react(event)?
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
    /// When the message is incomplete, or has a result and is no JSON-RPC response.
    pub fn finish(mut self) -> Result<Split, SplitError> {
        self.utf8.finish()?;
        self.lexer.finish()?;
        let envelope = self.envelope.take();
        let Some(result) = self.result else {
            return Ok(Split::Whole(envelope));
        };
        // What was kept is the message with an empty result, so the ordinary rules check it.
        match Message::parse(envelope, &self.caps.limits)? {
            Message::Response(response) if response.outcome.is_ok() => {
                let result_type = result.result_type().map(Bytes::copy_from_slice);
                Ok(Split::Response(Box::new(ResponseEnd {
                    response,
                    result_type,
                    rest: result.rest(),
                })))
            }
            _ => Err(SplitError::NotAResponse),
        }
    }

    /// Keeps keys and the id.
    fn read(&mut self, bytes: &[u8]) {
        let held = self
            .key
            .as_mut()
            .map(|key| (key, KEY_MAX))
            .or(self.id_text.as_mut().map(|id| (id, ID_MAX)));
        if let Some((text, most)) = held {
            let room = most.saturating_sub(text.len());
            text.extend(bytes.iter().take(room));
        }
    }

    /// Takes an event outside of the result; true where the result object begins.
    fn react(&mut self, event: Event) -> Result<bool, SplitError> {
        let depth = self.lexer.depth();
        match event {
            Event::KeyStart => self.key = Some(Vec::new()),
            Event::KeyEnd => {
                let key = self.key.take().unwrap_or_default();
                let name = key.split_last().map(|(_, name)| Key::new(name));
                let is = |wanted: &str| name.as_ref().is_some_and(|name| name.eq_str(wanted));
                self.member = if is("result") {
                    Member::Result
                } else if is("id") {
                    Member::Id
                } else {
                    Member::Other
                };
            }
            Event::ValueStart(b'{') if depth == 1 && self.member == Member::Result => {
                if self.result.is_some() {
                    return Err(duplicate(&self.lexer));
                }
                self.result = Some(Withholding::default());
                self.in_result = true;
                self.lexer.set_report(2);
                return Ok(true);
            }
            Event::ValueStart(_) if depth == 1 && self.member == Member::Id => {
                self.id_text = Some(Vec::new())
            }
            Event::ValueEnd if depth == 1 => {
                if let Some(text) = self.id_text.take() {
                    if self.id.is_some() {
                        return Err(duplicate(&self.lexer));
                    }
                    self.id = Some(RequestId::from_json(&text).ok());
                }
                self.member = Member::Other;
            }
            Event::Open | Event::ValueStart(_) | Event::ValueEnd | Event::Closing => {}
        }
        Ok(false)
    }
}

fn duplicate(lexer: &Lexer) -> SplitError {
    SplitError::Scan(ScanError {
        kind: ScanErrorKind::DuplicateKey,
        offset: lexer.offset(),
    })
}

/// The longest spelling of `result`, every letter escaped, with its closing quote and one byte to
/// tell longer keys apart.
const KEY_MAX: usize = 6 * 6 + 2;
/// A longer id is none of weir's, and cut off it is none at all.
const ID_MAX: usize = 256;

/// Bytes that are kept: as a slice while it is one chunk, copied from the second on.
#[derive(Debug, Default)]
struct Kept {
    first: Bytes,
    rest: BytesMut,
}

impl Kept {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn push(&mut self, bytes: Bytes) {
        if self.len() == 0 {
            self.first = bytes;
        } else if !bytes.is_empty() {
            self.rest
                .extend_from_slice(&std::mem::take(&mut self.first));
            self.rest.extend_from_slice(&bytes);
        }
    }

    fn take(&mut self) -> Bytes {
        if self.rest.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            self.rest.split().freeze()
        }
    }
}

#[cfg(test)]
mod tests;
