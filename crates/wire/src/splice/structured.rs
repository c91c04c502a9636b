//! Adding the structured content of a tool's result to its `content` as a text block, while the
//! bytes pass.
//!
//! A text block of the JSON is added behind the others, unless one of them is that JSON already.
//! Where `content` comes first, its closing bracket and all that follows are held until
//! `structuredContent` was read or the result ends; where `structuredContent` comes first, a copy
//! of it is held until the end of `content`. Texts are compared by their digests ([`JsonDigest`]),
//! so none is held.

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
/// Text blocks that are remembered for the comparison. Where there are more that are JSON, one may
/// be said twice.
const TEXTS_MAX: usize = 4096;
/// How much of the value becomes one piece of text.
const PIECE: usize = 16 << 10;

/// The values of `structuredContent` that its reader can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// None.
    Nothing,
    /// Objects.
    Objects,
}

/// The texts that stand for a value that is too large to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// For a value that was read.
    pub value: &'static str,
    /// Where more than can be held stands between `content` and the value, if there is one.
    pub perhaps: &'static str,
}

/// Edits one result. Everything but what is added passes byte for byte, except for a
/// `structuredContent` that is too large to hold: this member goes where it comes behind `content`.
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
    /// Whether `content` has a block, so that the next one needs a comma.
    occupied: bool,
    block: TextBlock,
    /// The texts that are JSON.
    texts: BTreeSet<u64>,
    /// The closing bracket of `content` and what follows.
    held: Vec<u8>,
    /// The length of `held` up to the last member that is whole.
    whole: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// It did not come yet.
    Ahead,
    /// Its elements pass.
    Open,
    /// Its elements have passed, its closing bracket is held.
    Held,
    /// Nothing is added to it any more.
    Closed,
}

#[derive(Debug)]
enum Value {
    /// It did not come yet.
    Ahead,
    /// It is being read; `None` for the copy where it is too large to hold.
    Open {
        digest: Option<JsonDigest>,
        copy: Option<Vec<u8>>,
    },
    /// It was read, and has to be said.
    Read {
        digest: Option<u64>,
        copy: Option<Vec<u8>>,
    },
    /// It need not be said: it can be carried, or was said.
    Settled,
}

/// What is known of the block that is read.
#[derive(Debug, Default)]
struct TextBlock {
    is_object: bool,
    field: Field,
    /// Whether its value is read, and is a string.
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
    /// Whether more than white space came.
    has_begun: bool,
}

impl StructuredAsText {
    /// For a reader that can take these values.
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

    /// Edits a whole result at once; nothing is too large then.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn apply(mut self, result: &Bytes) -> Result<Bytes, SpliceError> {
        let mut out = BytesMut::with_capacity(result.len());
        self.feed(result, &mut |_| true, &mut out)?;
        self.finish()?;
        Ok(out.freeze())
    }

    /// Takes the next chunk and emits what is decided. `room` is asked before more is held: whether
    /// there is room for so many further bytes. What is held is given up where there is none.
    ///
    /// # Errors
    /// When the bytes so far are not the beginning of JSON within the limits.
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
    /// When it is incomplete.
    pub fn finish(mut self) -> Result<(), SpliceError> {
        Ok(self.lexer.finish()?)
    }

    /// How many bytes are held.
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
            // What is no JSON ends in the lexer of the result.
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
                // Without a copy there is nothing to give in place of the member.
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
                // What is no array has no place for a block.
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

    /// The closing bracket of `content` comes next.
    fn content_ends<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        if matches!(self.value, Value::Ahead) {
            self.content = Content::Held;
        } else {
            self.settle(port);
            self.content = Content::Closed;
        }
    }

    /// The closing brace comes next.
    fn result_ends<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        if self.content == Content::Ahead && matches!(self.value, Value::Read { .. }) {
            port.put(br#","content":["#);
            self.settle(port);
            port.put(b"]");
        }
        self.release(port);
    }

    /// Says the value that was read, unless a text did.
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

    /// Puts a text block behind those of `content`.
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

    /// What is held goes on; nothing is added to `content` any more.
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
    /// Takes the next bytes; false where they are nothing that has to be compared.
    fn read(&mut self, bytes: &[u8], carried: Carried) -> bool {
        let mut plain = Vec::with_capacity(bytes.len());
        self.unescape
            .feed(bytes, |piece| plain.extend_from_slice(piece));
        if !self.has_begun {
            let first = scan::trim(&plain).first();
            // What can be carried is never said.
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
