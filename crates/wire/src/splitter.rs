//! Taking the `result` out of one JSON-RPC message while its bytes pass.
//!
//! Replies are small, except for the few that are huge. [`ReplySplitter`] collects a message whole as long as it is small; once it has
//! grown beyond a threshold and `result` is being read, it hands the result's bytes on as they come, so that 50 MiB pass in bounded
//! memory. It decides nothing about the result itself (see [`crate::splice`]).

use bytes::{Bytes, BytesMut};

use crate::lexer::{Event, Lexer};
use crate::scan::{Key, Limits, ScanError};
use crate::utf8::Utf8;
use crate::{Message, MessageError, Response};

/// Bounds of a splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitCaps {
    /// A message longer than this many bytes is not kept whole if its `result` can be streamed.
    pub stream_over: usize,
    /// The most bytes that are kept of a message in any case.
    pub max_held: usize,
    /// The most bytes of a message at all.
    pub max_total: u64,
    /// Depth, tokens, numbers.
    pub limits: Limits,
}

impl Default for SplitCaps {
    fn default() -> Self {
        Self {
            stream_over: 64 * 1024,
            max_held: 4 * 1024 * 1024,
            max_total: 64 * 1024 * 1024,
            limits: Limits::upstream(),
        }
    }
}

/// What comes out.
#[derive(Clone, Debug)]
pub enum Piece {
    /// The whole message, given by [`ReplySplitter::finish`]: parse it with [`Message::parse`].
    Whole(Bytes),
    /// The next bytes of the `result` object, first brace to last. Never empty.
    Result(Bytes),
    /// After the result: the rest of the message is as it should be, and whose answer it was. The outcome is `Ok` of an empty object.
    End(Response),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Everything is kept.
    Keep,
    /// Inside `result`, which is given out.
    Stream,
    /// Behind a streamed result: the rest is kept for the check.
    Rest,
}

/// Splits one message. Feed it with [`ReplySplitter::feed`], end it with [`ReplySplitter::finish`].
#[derive(Debug)]
pub struct ReplySplitter {
    caps: SplitCaps,
    lexer: Lexer,
    utf8: Utf8,
    phase: Phase,
    kept: Kept,
    /// The key being read, as far as it can matter.
    key: Option<Vec<u8>>,
    is_result: bool,
    /// Where the `result` object being read begins.
    result_at: Option<usize>,
}

impl ReplySplitter {
    /// A splitter at the start of a message.
    #[must_use]
    pub fn new(caps: SplitCaps) -> Self {
        Self {
            caps,
            lexer: Lexer::new(caps.limits, 1),
            utf8: Utf8::default(),
            phase: Phase::Keep,
            kept: Kept::default(),
            key: None,
            is_result: false,
            result_at: None,
        }
    }

    /// Whether the message is given out in pieces, which is settled once the first [`Piece::Result`] came.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.phase != Phase::Keep
    }

    /// Takes the next chunk; adds to `out` what can be given.
    ///
    /// # Errors
    /// When the message is malformed, too deep or too large.
    pub fn feed(&mut self, chunk: &Bytes, out: &mut Vec<Piece>) -> Result<(), SplitError> {
        self.utf8.feed(chunk)?;
        if self.lexer.offset() + chunk.len() as u64 > self.caps.max_total {
            return Err(SplitError::TooLong);
        }
        let (mut pos, mut kept_to) = (0, 0);
        while pos < chunk.len() {
            // Whether a message is streamed must not depend on its chunks, so the threshold is a border of its own.
            let end = chunk.len().min(pos.saturating_add(self.until_threshold()));
            let (consumed, event) = self.lexer.advance(&chunk[pos..end])?;
            let range = pos..pos + consumed;
            pos = range.end;
            self.note_key(&chunk[range.clone()]);
            if self.phase == Phase::Stream {
                kept_to = pos;
                if !range.is_empty() {
                    out.push(Piece::Result(chunk.slice(range)));
                }
            }
            if let Some(event) = event {
                self.react(event);
            }
            if self.phase == Phase::Keep && self.result_at.is_some() && self.until_threshold() == usize::MAX {
                self.kept.push(chunk.slice(kept_to..pos));
                kept_to = pos;
                self.begin_stream(out);
            }
        }
        self.kept.push(chunk.slice(kept_to..pos));
        if self.kept.len() > self.caps.max_held { Err(SplitError::TooLong) } else { Ok(()) }
    }

    /// Ends the message: its last piece.
    ///
    /// # Errors
    /// When the message is incomplete, or was streamed and is no JSON-RPC response.
    pub fn finish(mut self) -> Result<Piece, SplitError> {
        self.utf8.finish()?;
        self.lexer.finish()?;
        let kept = self.kept.take();
        if self.phase == Phase::Keep {
            return Ok(Piece::Whole(kept));
        }
        // What was kept of a streamed message is the message with an empty result, so the ordinary rules check it.
        match Message::parse(kept, &self.caps.limits)? {
            Message::Response(response) if response.outcome.is_ok() => Ok(Piece::End(response)),
            _ => Err(SplitError::NotAResponse),
        }
    }

    fn until_threshold(&self) -> usize {
        let left = (self.caps.stream_over as u64).saturating_sub(self.lexer.offset());
        if left == 0 { usize::MAX } else { usize::try_from(left).unwrap_or(usize::MAX) }
    }

    fn note_key(&mut self, bytes: &[u8]) {
        if let Some(key) = &mut self.key {
            let room = KEY_MAX.saturating_sub(key.len());
            key.extend(bytes.iter().take(room));
        }
    }

    fn react(&mut self, event: Event) {
        let depth = self.lexer.depth();
        match event {
            Event::KeyStart => self.key = Some(Vec::new()),
            Event::KeyEnd => {
                let key = self.key.take().unwrap_or_default();
                self.is_result = key.split_last().is_some_and(|(_, name)| Key::new(name).eq_str("result"));
            }
            Event::ValueStart(b'{') if depth == 1 && self.is_result => {
                self.result_at = usize::try_from(self.lexer.offset()).ok();
            }
            Event::ValueEnd if depth == 1 => {
                self.is_result = false;
                self.result_at = None;
                if self.phase == Phase::Stream {
                    self.phase = Phase::Rest;
                }
            }
            Event::Open | Event::ValueStart(_) | Event::ValueEnd | Event::Closing => {}
        }
    }

    fn begin_stream(&mut self, out: &mut Vec<Piece>) {
        let mut head = self.kept.take();
        let begun = head.split_off(self.result_at.unwrap_or(head.len()).min(head.len()));
        self.kept.push(head);
        self.kept.push(Bytes::from_static(b"{}"));
        if !begun.is_empty() {
            out.push(Piece::Result(begun));
        }
        self.phase = Phase::Stream;
    }
}

/// The longest spelling of `result`, every letter escaped, with its closing quote and one byte to tell longer keys apart.
const KEY_MAX: usize = 6 * 6 + 2;

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
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
            self.rest.extend_from_slice(&bytes);
        }
    }

    fn take(&mut self) -> Bytes {
        if self.rest.is_empty() { std::mem::take(&mut self.first) } else { self.rest.split().freeze() }
    }
}

#[cfg(test)]
mod tests;
