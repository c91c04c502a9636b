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

use crate::json_digest::{JsonDigest, StringUnescaper};
use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::splice::ByteSink;
use crate::splice::key_buffer::KeyBuffer;
use crate::splice::rewriter::SpliceError;
use crate::splice::splice_output::SpliceOutput;
use crate::write;

/// The longest type of a block that is read.
const MAX_KIND_BYTES: usize = 128;
/// The most digests of text blocks that are remembered. With more JSON texts than that, the value
/// may be repeated.
const TEXTS_MAX: usize = 4096;
/// The most bytes of the value in one piece of text.
const PIECE_BYTES: usize = 16 << 10;

/// The values of `structuredContent` that the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedValues {
    /// No values.
    Nothing,
    /// Objects.
    Objects,
}

/// The texts that replace a value too large to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutTexts {
    /// The text for a value that was read.
    pub value: &'static str,
    /// The text if more than can be held stands between `content` and a possible value.
    pub perhaps: &'static str,
}

/// Edits one result. All other bytes pass unchanged, except for a `structuredContent` that is too
/// large to hold: this member is dropped if it follows `content`.
#[derive(Debug)]
pub struct StructuredAsText {
    carried: CarriedValues,
    left_out_texts: LeftOutTexts,
    lexer: JsonLexer,
    /// The key being read, or read last, with its closing quote.
    key: KeyBuffer,
    content: ContentState,
    value: ValueState,
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
enum ContentState {
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
enum ValueState {
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
    field: BlockField,
    /// True while its value is read, and is a string.
    reading: bool,
    kind: Vec<u8>,
    text: Option<TextDigest>,
    digest: Option<u64>,
}

/// The member of the block that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BlockField {
    Type,
    Text,
    #[default]
    Other,
}

/// A text that may be JSON.
#[derive(Debug, Default)]
struct TextDigest {
    unescape: StringUnescaper,
    digest: JsonDigest,
    /// True once more than white space came.
    has_begun: bool,
}

impl StructuredAsText {
    /// An editor for a client that can read these values.
    #[must_use]
    pub fn new(carried: CarriedValues, left_out: LeftOutTexts) -> Self {
        Self {
            carried,
            left_out_texts: left_out,
            lexer: JsonLexer::new(JsonLimits::upstream(), 1),
            key: KeyBuffer::default(),
            content: ContentState::Ahead,
            value: ValueState::Ahead,
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
        out: &mut impl ByteSink,
    ) -> Result<(), SpliceError> {
        let mut output = SpliceOutput::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            self.take(pos..pos + consumed, room, &mut output);
            pos += consumed;
            if let Some(event) = event {
                self.handle_event(event, &mut output);
            }
        }
        output.flush();
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
            ValueState::Open { copy, .. } | ValueState::Read { copy, .. } => {
                copy.as_ref().map_or(0, Vec::len)
            }
            ValueState::Ahead | ValueState::Settled => 0,
        };
        self.held.len() + copy
    }

    fn take<S: ByteSink>(
        &mut self,
        range: Range<usize>,
        room: &mut impl FnMut(usize) -> bool,
        output: &mut SpliceOutput<'_, S>,
    ) {
        let bytes = &output.chunk()[range.clone()];
        self.key.read(bytes);
        if let ValueState::Open { digest, copy } = &mut self.value {
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
            if self.content == ContentState::Held {
                return;
            }
        } else if self.content == ContentState::Held {
            if room(bytes.len()) {
                self.held.extend_from_slice(bytes);
                return;
            }
            self.add_text_block(self.left_out_texts.perhaps, output);
            self.value = ValueState::Settled;
            self.emit_held(output);
        } else if self.content == ContentState::Open && !matches!(self.value, ValueState::Settled) {
            self.block.read(bytes, self.carried);
        }
        output.pass(range);
    }

    fn handle_event<S: ByteSink>(&mut self, event: LexerEvent, output: &mut SpliceOutput<'_, S>) {
        match (event, self.lexer.depth()) {
            (LexerEvent::KeyStart, _) => self.key.begin(),
            (LexerEvent::KeyEnd, depth) => {
                self.key.end();
                if depth == 3 {
                    self.block.field = if self.key.is("type") {
                        BlockField::Type
                    } else if self.key.is("text") {
                        BlockField::Text
                    } else {
                        BlockField::Other
                    };
                }
            }
            (LexerEvent::ValueStart(byte), 1) => self.member_starts(byte, output),
            (LexerEvent::ValueEnd, 1) => self.member_ends(output),
            (LexerEvent::Closing, 1) => self.result_ends(output),
            (LexerEvent::ValueStart(byte), 2) => {
                self.occupied = true;
                self.block = TextBlock {
                    is_object: byte == b'{',
                    ..TextBlock::default()
                };
            }
            (LexerEvent::ValueEnd, 2) => self.block_ends(),
            (LexerEvent::Closing, 2) if self.content == ContentState::Open => {
                self.content_ends(output)
            }
            (LexerEvent::ValueStart(byte), 3) => self.block.field_starts(byte),
            (LexerEvent::ValueEnd, 3) => self.block.field_ends(),
            (
                LexerEvent::Open
                | LexerEvent::ValueStart(_)
                | LexerEvent::ValueEnd
                | LexerEvent::Closing,
                _,
            ) => {}
        }
    }

    fn member_starts<S: ByteSink>(&mut self, byte: u8, output: &mut SpliceOutput<'_, S>) {
        if self.content == ContentState::Ahead && self.key.is("content") {
            if byte == b'[' {
                self.content = ContentState::Open;
                self.lexer.set_report(3);
            } else {
                // A `content` that is not an array has no room for a block.
                self.content = ContentState::Closed;
                self.value = ValueState::Settled;
            }
        } else if matches!(self.value, ValueState::Ahead) && self.key.is("structuredContent") {
            if self.carried == CarriedValues::Objects && byte == b'{' {
                self.value = ValueState::Settled;
                self.emit_held(output);
            } else if self.content != ContentState::Closed {
                self.value = ValueState::Open {
                    digest: Some(JsonDigest::default()),
                    copy: Some(Vec::new()),
                };
            }
        }
    }

    fn member_ends<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        self.lexer.set_report(1);
        self.whole = self.held.len();
        if let ValueState::Open { digest, copy } = &mut self.value {
            let (digest, copy) = (digest.take().and_then(JsonDigest::finish), copy.take());
            self.value = ValueState::Read { digest, copy };
            if self.content == ContentState::Held {
                self.add_value(output);
                self.emit_held(output);
            }
        }
    }

    fn block_ends(&mut self) {
        let TextBlock { kind, digest, .. } = std::mem::take(&mut self.block);
        let Some(text) = digest.filter(|_| scan::string(&kind).as_deref() == Some("text")) else {
            return;
        };
        match &self.value {
            ValueState::Read {
                digest: Some(value),
                ..
            } if *value == text => self.value = ValueState::Settled,
            ValueState::Ahead if self.texts.len() < TEXTS_MAX => drop(self.texts.insert(text)),
            ValueState::Ahead
            | ValueState::Open { .. }
            | ValueState::Read { .. }
            | ValueState::Settled => {}
        }
    }

    /// Handles the closing bracket of `content`, which comes next.
    fn content_ends<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        if matches!(self.value, ValueState::Ahead) {
            self.content = ContentState::Held;
        } else {
            self.add_value(output);
            self.content = ContentState::Closed;
        }
    }

    /// Handles the closing brace of the result, which comes next.
    fn result_ends<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        if self.content == ContentState::Ahead && matches!(self.value, ValueState::Read { .. }) {
            output.put(br#","content":["#);
            self.add_value(output);
            output.put(b"]");
        }
        self.emit_held(output);
    }

    /// Adds the value that was read as a text block, unless a text block has it already.
    fn add_value<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        let ValueState::Read { digest, copy } =
            std::mem::replace(&mut self.value, ValueState::Settled)
        else {
            return;
        };
        let is_said = digest.is_some_and(|digest| self.texts.contains(&digest));
        match copy {
            Some(copy) => {
                if !is_said {
                    self.add_text_block(&String::from_utf8_lossy(&copy), output);
                }
                if self.content == ContentState::Held {
                    self.held.extend_from_slice(&copy);
                }
            }
            None if is_said => {}
            None => self.add_text_block(self.left_out_texts.value, output),
        }
    }

    /// Adds a text block behind those of `content`.
    fn add_text_block<S: ByteSink>(&mut self, text: &str, output: &mut SpliceOutput<'_, S>) {
        let comma: &[u8] = if std::mem::replace(&mut self.occupied, true) {
            b","
        } else {
            b""
        };
        output.put(comma);
        output.put(br#"{"type":"text","text":""#);
        let mut rest = text;
        while !rest.is_empty() {
            let cut = (0..=rest.len().min(PIECE_BYTES))
                .rev()
                .find(|at| rest.is_char_boundary(*at));
            let (piece, more) = rest.split_at(cut.unwrap_or(rest.len()));
            let mut out = BytesMut::with_capacity(piece.len() + piece.len() / 4);
            write::escaped(&mut out, piece);
            output.put(&out);
            rest = more;
        }
        output.put(br#""}"#);
    }

    /// Emits the held bytes; no more blocks are added to `content`.
    fn emit_held<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        output.put(&std::mem::take(&mut self.held));
        self.texts = BTreeSet::new();
        self.content = ContentState::Closed;
    }
}

impl TextBlock {
    fn field_starts(&mut self, byte: u8) {
        self.reading = self.is_object && byte == b'"';
        if self.reading && self.field == BlockField::Text {
            self.text = Some(TextDigest::default());
        }
    }

    fn read(&mut self, bytes: &[u8], carried: CarriedValues) {
        if self.reading && self.field == BlockField::Type {
            let left = MAX_KIND_BYTES.saturating_sub(self.kind.len());
            self.kind.extend(bytes.iter().take(left));
        } else if let Some(text) = &mut self.text
            && !text.read(bytes, carried)
        {
            self.text = None;
        }
    }

    fn field_ends(&mut self) {
        self.reading = false;
        self.field = BlockField::Other;
        if let Some(text) = self.text.take() {
            self.digest = text.digest.finish();
        }
    }
}

impl TextDigest {
    /// Takes the next bytes; false if the text needs no comparison.
    fn read(&mut self, bytes: &[u8], carried: CarriedValues) -> bool {
        let mut plain = Vec::with_capacity(bytes.len());
        self.unescape
            .feed(bytes, |piece| plain.extend_from_slice(piece));
        if !self.has_begun {
            let first = scan::trim(&plain).first();
            // A value that the client can read is never added.
            if first == Some(&b'{') && carried == CarriedValues::Objects {
                return false;
            }
            self.has_begun = first.is_some();
        }
        self.digest.feed(&plain).is_ok()
    }
}

#[cfg(test)]
mod tests;
