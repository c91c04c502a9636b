//! Copies the structured content of a tool's result into its `content` as a text block, while the
//! bytes pass.
//!
//! A text block of the JSON is added behind the others, unless one of them is that JSON already. If
//! `content` comes first, its closing bracket and all that follows are held until
//! `structuredContent` was read or the result ends. If `structuredContent` comes first, a copy of
//! it is held until the end of `content`. Texts are compared by their digests ([`JsonDigest`]), so
//! no text is held.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::passage::Port;
use super::{Sink, SpliceError};
use crate::digest::{JsonDigest, Unescape};
use crate::lexer::{Event, Lexer};
use crate::scan::{self, Key, Limits};
use crate::write;

/// The longest key that is read, and the longest type of a block.
const KEY_MAX: usize = 128;
/// The most digests of text blocks that are remembered. With more JSON texts than that, the value
/// may be repeated.
const TEXTS_MAX: usize = 4096;
/// The most bytes of the value in one piece of text.
const PIECE: usize = 16 << 10;

/// The values of `structuredContent` that the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// No values.
    Nothing,
    /// Objects.
    Objects,
}

/// The texts that replace a value too large to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The text for a value that was read.
    pub value: &'static str,
    /// The text if more than can be held stands between `content` and a possible value.
    pub perhaps: &'static str,
}

/// Edits one result. All other bytes pass unchanged, except for a `structuredContent` that is too
/// large to hold: this member is dropped if it follows `content`.
#[derive(Debug)]
pub struct StructuredAsText {
    carried: Carried,
    left_out: LeftOut,
    lexer: Lexer,
    /// The key being read, or read last, with its closing quote.
    key: Vec<u8>,
    in_key: bool,
    content: Content,
    value: Value,
    /// True if `content` has a block, so that the next one needs a comma.
    occupied: bool,
    block: TextBlock,
    /// The digests of the texts that are JSON.
    texts: BTreeSet<u64>,
    /// The closing bracket of `content` and all bytes behind it.
    held: Vec<u8>,
    /// The length of `held` up to the end of the last complete member.
    whole: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// It has not come yet.
    Ahead,
    /// Its elements pass.
    Open,
    /// Its elements have passed, its closing bracket is held.
    Held,
    /// No more blocks are added to it.
    Closed,
}

#[derive(Debug)]
enum Value {
    /// It has not come yet.
    Ahead,
    /// It is being read; there is no copy if it is too large to hold.
    Open {
        digest: Option<JsonDigest>,
        copy: Option<Vec<u8>>,
    },
    /// It was read, and has to be added as text.
    Read {
        digest: Option<u64>,
        copy: Option<Vec<u8>>,
    },
    /// It need not be added: the client can read it, or a text block has it.
    Settled,
}

/// The known parts of the block that is read.
#[derive(Debug, Default)]
struct TextBlock {
    is_object: bool,
    field: Field,
    /// True while its value is read, and is a string.
    reading: bool,
    kind: Vec<u8>,
    text: Option<Text>,
    digest: Option<u64>,
}

/// The member of the block that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Field {
    Type,
    Text,
    #[default]
    Other,
}

/// A text that may be JSON.
#[derive(Debug, Default)]
struct Text {
    unescape: Unescape,
    digest: JsonDigest,
    /// True once more than white space came.
    has_begun: bool,
}

impl StructuredAsText {
    /// An editor for a client that can read these values.
    #[must_use]
    pub fn new(carried: Carried, left_out: LeftOut) -> Self {
        Self {
            carried,
            left_out,
            lexer: Lexer::new(Limits::upstream(), 1),
            key: Vec::new(),
            in_key: false,
            content: Content::Ahead,
            value: Value::Ahead,
            occupied: false,
            block: TextBlock::default(),
            texts: BTreeSet::new(),
            held: Vec::new(),
            whole: 0,
        }
    }

    /// Edits a whole result at once, without a limit on the held bytes.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn apply(mut self, result: &Bytes) -> Result<Bytes, SpliceError> {
        let mut out = BytesMut::with_capacity(result.len());
        self.feed(result, &mut |_| true, &mut out)?;
        self.finish()?;
        Ok(out.freeze())
    }

    /// Takes the next chunk and emits the decided bytes. `room` is asked before more is held, with
    /// the count of further bytes. If it returns false, the held bytes are given up.
    ///
    /// # Errors
    /// The bytes so far are not the beginning of JSON within the limits.
    pub fn feed(
        &mut self,
        chunk: &Bytes,
        room: &mut impl FnMut(usize) -> bool,
        out: &mut impl Sink,
    ) -> Result<(), SpliceError> {
        let mut port = Port::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            self.take(pos..pos + consumed, room, &mut port);
            pos += consumed;
            if let Some(event) = event {
                self.react(event, &mut port);
            }
        }
        port.flush();
        Ok(())
    }

    /// Ends the result.
    ///
    /// # Errors
    /// The result is incomplete.
    pub fn finish(mut self) -> Result<(), SpliceError> {
        Ok(self.lexer.finish()?)
    }

    /// The count of held bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        let copy = match &self.value {
            Value::Open { copy, .. } | Value::Read { copy, .. } => {
                copy.as_ref().map_or(0, Vec::len)
            }
            Value::Ahead | Value::Settled => 0,
        };
        self.held.len() + copy
    }

    fn take<S: Sink>(
        &mut self,
        range: Range<usize>,
        room: &mut impl FnMut(usize) -> bool,
        port: &mut Port<'_, S>,
    ) {
        let bytes = &port.chunk()[range.clone()];
        if self.in_key {
            let left = KEY_MAX.saturating_sub(self.key.len());
            self.key.extend(bytes.iter().take(left));
        }
        if let Value::Open { digest, copy } = &mut self.value {
            // The lexer of the result finds a fault in the JSON.
            if digest
                .as_mut()
                .is_some_and(|digest| digest.feed(bytes).is_err())
            {
                *digest = None;
            }
            if let Some(text) = copy.as_mut().filter(|_| room(bytes.len())) {
                text.extend_from_slice(bytes);
            } else {
                *copy = None;
                // Without a copy there is no replacement for the member.
                self.held.truncate(self.whole);
            }
            if self.content == Content::Held {
                return;
            }
        } else if self.content == Content::Held {
            if room(bytes.len()) {
                self.held.extend_from_slice(bytes);
                return;
            }
            self.say(self.left_out.perhaps, port);
            self.value = Value::Settled;
            self.release(port);
        } else if self.content == Content::Open && !matches!(self.value, Value::Settled) {
            self.block.read(bytes, self.carried);
        }
        port.pass(range);
    }

    fn react<S: Sink>(&mut self, event: Event, port: &mut Port<'_, S>) {
        match (event, self.lexer.depth()) {
            (Event::KeyStart, _) => {
                self.key.clear();
                self.in_key = true;
            }
            (Event::KeyEnd, depth) => {
                self.in_key = false;
                if depth == 3 {
                    self.block.field = if self.is_key("type") {
                        Field::Type
                    } else if self.is_key("text") {
                        Field::Text
                    } else {
                        Field::Other
                    };
                }
            }
            (Event::ValueStart(byte), 1) => self.member_starts(byte, port),
            (Event::ValueEnd, 1) => self.member_ends(port),
            (Event::Closing, 1) => self.result_ends(port),
            (Event::ValueStart(byte), 2) => {
                self.occupied = true;
                self.block = TextBlock {
                    is_object: byte == b'{',
                    ..TextBlock::default()
                };
            }
            (Event::ValueEnd, 2) => self.block_ends(),
            (Event::Closing, 2) if self.content == Content::Open => self.content_ends(port),
            (Event::ValueStart(byte), 3) => self.block.field_starts(byte),
            (Event::ValueEnd, 3) => self.block.field_ends(),
            (Event::Open | Event::ValueStart(_) | Event::ValueEnd | Event::Closing, _) => {}
        }
    }

    fn is_key(&self, name: &str) -> bool {
        self.key
            .split_last()
            .is_some_and(|(_, key)| Key::new(key).eq_str(name))
    }

    fn member_starts<S: Sink>(&mut self, byte: u8, port: &mut Port<'_, S>) {
        if self.content == Content::Ahead && self.is_key("content") {
            if byte == b'[' {
                self.content = Content::Open;
                self.lexer.set_report(3);
            } else {
                // A `content` that is not an array has no room for a block.
                self.content = Content::Closed;
                self.value = Value::Settled;
            }
        } else if matches!(self.value, Value::Ahead) && self.is_key("structuredContent") {
            if self.carried == Carried::Objects && byte == b'{' {
                self.value = Value::Settled;
                self.release(port);
            } else if self.content != Content::Closed {
                self.value = Value::Open {
                    digest: Some(JsonDigest::default()),
                    copy: Some(Vec::new()),
                };
            }
        }
    }

    fn member_ends<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        self.lexer.set_report(1);
        self.whole = self.held.len();
        if let Value::Open { digest, copy } = &mut self.value {
            let (digest, copy) = (digest.take().and_then(JsonDigest::finish), copy.take());
            self.value = Value::Read { digest, copy };
            if self.content == Content::Held {
                self.settle(port);
                self.release(port);
            }
        }
    }

    fn block_ends(&mut self) {
        let TextBlock { kind, digest, .. } = std::mem::take(&mut self.block);
        let Some(text) = digest.filter(|_| scan::string(&kind).as_deref() == Some("text")) else {
            return;
        };
        match &self.value {
            Value::Read {
                digest: Some(value),
                ..
            } if *value == text => self.value = Value::Settled,
            Value::Ahead if self.texts.len() < TEXTS_MAX => drop(self.texts.insert(text)),
            Value::Ahead | Value::Open { .. } | Value::Read { .. } | Value::Settled => {}
        }
    }

    /// Handles the closing bracket of `content`, which comes next.
    fn content_ends<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        if matches!(self.value, Value::Ahead) {
            self.content = Content::Held;
        } else {
            self.settle(port);
            self.content = Content::Closed;
        }
    }

    /// Handles the closing brace of the result, which comes next.
    fn result_ends<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        if self.content == Content::Ahead && matches!(self.value, Value::Read { .. }) {
            port.put(br#","content":["#);
            self.settle(port);
            port.put(b"]");
        }
        self.release(port);
    }

    /// Adds the value that was read as a text block, unless a text block has it already.
    fn settle<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        let Value::Read { digest, copy } = std::mem::replace(&mut self.value, Value::Settled)
        else {
            return;
        };
        let is_said = digest.is_some_and(|digest| self.texts.contains(&digest));
        match copy {
            Some(copy) => {
                if !is_said {
                    self.say(&String::from_utf8_lossy(&copy), port);
                }
                if self.content == Content::Held {
                    self.held.extend_from_slice(&copy);
                }
            }
            None if is_said => {}
            None => self.say(self.left_out.value, port),
        }
    }

    /// Adds a text block behind those of `content`.
    fn say<S: Sink>(&mut self, text: &str, port: &mut Port<'_, S>) {
        let comma: &[u8] = if std::mem::replace(&mut self.occupied, true) {
            b","
        } else {
            b""
        };
        port.put(comma);
        port.put(br#"{"type":"text","text":""#);
        let mut rest = text;
        while !rest.is_empty() {
            let cut = (0..=rest.len().min(PIECE))
                .rev()
                .find(|at| rest.is_char_boundary(*at));
            let (piece, more) = rest.split_at(cut.unwrap_or(rest.len()));
            let mut out = BytesMut::with_capacity(piece.len() + piece.len() / 4);
            write::escaped(&mut out, piece);
            port.put(&out);
            rest = more;
        }
        port.put(br#""}"#);
    }

    /// Emits the held bytes; no more blocks are added to `content`.
    fn release<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        port.put(&std::mem::take(&mut self.held));
        self.texts = BTreeSet::new();
        self.content = Content::Closed;
    }
}

impl TextBlock {
    fn field_starts(&mut self, byte: u8) {
        self.reading = self.is_object && byte == b'"';
        if self.reading && self.field == Field::Text {
            self.text = Some(Text::default());
        }
    }

    fn read(&mut self, bytes: &[u8], carried: Carried) {
        if self.reading && self.field == Field::Type {
            let left = KEY_MAX.saturating_sub(self.kind.len());
            self.kind.extend(bytes.iter().take(left));
        } else if let Some(text) = &mut self.text
            && !text.read(bytes, carried)
        {
            self.text = None;
        }
    }

    fn field_ends(&mut self) {
        self.reading = false;
        self.field = Field::Other;
        if let Some(text) = self.text.take() {
            self.digest = text.digest.finish();
        }
    }
}

impl Text {
    /// Takes the next bytes; false if the text needs no comparison.
    fn read(&mut self, bytes: &[u8], carried: Carried) -> bool {
        let mut plain = Vec::with_capacity(bytes.len());
        self.unescape
            .feed(bytes, |piece| plain.extend_from_slice(piece));
        if !self.has_begun {
            let first = scan::trim(&plain).first();
            // A value that the client can read is never added.
            if first == Some(&b'{') && carried == Carried::Objects {
                return false;
            }
            self.has_begun = first.is_some();
        }
        self.digest.feed(&plain).is_ok()
    }
}

#[cfg(test)]
mod tests;
