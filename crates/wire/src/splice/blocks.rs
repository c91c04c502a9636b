//! Replacement of content blocks of types that a revision does not define, while the bytes of a
//! result pass.
//!
//! `content` of a tool's result is an array of objects, each with a `type`. The caller chooses the
//! types to replace and the replacement text; this module finds the blocks. Nearly every block
//! begins with its type, so only that much is held. A block with a late type is held until the type
//! arrives, up to a limit.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::passage::Port;
use super::{Sink, SpliceError};
use crate::lexer::{Event, Lexer};
use crate::scan::{self, Key, Limits};
use crate::write;

/// The most bytes held of a block without a type; after that it is replaced unseen.
const HELD_MAX: usize = 1 << 20;
/// The longest text that is kept of a replaced block, and the longest key that is read.
const TEXT_MAX: usize = 1024;
const KEY_MAX: usize = 128;

/// The members of a block that its replacement text may use.
const FIELDS: [&str; 6] = ["type", "name", "title", "uri", "description", "mimeType"];

/// The known members of a replaced block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block([Vec<u8>; FIELDS.len()]);

impl Block {
    /// The block's type; absent if it was too long to read.
    #[must_use]
    pub fn kind(&self) -> Option<Cow<'_, str>> {
        self.text("type")
    }

    /// A string member of the block: `name`, `title`, `uri`, `description` or `mimeType`. Absent if
    /// it is missing or longer than 1 KiB.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        let at = FIELDS.iter().position(|field| *field == name)?;
        scan::string(&self.0[at])
    }
}

/// Renders the replacement text of a block.
type Tell = fn(&Block) -> String;

/// A filter that replaces the blocks of some types by text blocks. All other bytes pass unchanged.
#[derive(Debug)]
pub struct Blocks {
    lexer: Lexer,
    foreign: &'static [&'static str],
    tell: Tell,
    place: Place,
    mode: Mode,
    held: Vec<u8>,
    /// The key being read, or read last, with its closing quote.
    key: Vec<u8>,
    in_key: bool,
    field: Option<usize>,
    capturing: bool,
    /// True once too much of the block was held: its members are no longer read.
    given_up: bool,
    seen: Block,
}

/// The lexer's position in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    Content,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    Hold,
    Drop,
}

impl Blocks {
    /// A filter for these types; `tell` renders the replacement text.
    #[must_use]
    pub fn replacing(foreign: &'static [&'static str], tell: fn(&Block) -> String) -> Self {
        Self {
            lexer: Lexer::new(Limits::upstream(), 1),
            foreign,
            tell,
            place: Place::Outside,
            mode: Mode::Pass,
            held: Vec::new(),
            key: Vec::new(),
            in_key: false,
            field: None,
            capturing: false,
            given_up: false,
            seen: Block::default(),
        }
    }

    /// Edits a whole result at once.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn apply(mut self, result: &Bytes) -> Result<Bytes, SpliceError> {
        let mut out = BytesMut::with_capacity(result.len());
        self.feed(result, &mut out)?;
        self.finish()?;
        Ok(out.freeze())
    }

    /// Takes the next chunk and emits the decided bytes.
    ///
    /// # Errors
    /// The bytes so far are not the beginning of JSON within the limits.
    pub fn feed(&mut self, chunk: &Bytes, out: &mut impl Sink) -> Result<(), SpliceError> {
        let mut port = Port::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            let bytes = &chunk[pos..pos + consumed];
            self.read(bytes);
            match self.mode {
                Mode::Pass => port.pass(pos..pos + consumed),
                Mode::Hold => self.hold(bytes),
                Mode::Drop => {}
            }
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

    /// Collects keys, and the members of a block that its replacement may use.
    fn read(&mut self, bytes: &[u8]) {
        if self.in_key {
            let room = KEY_MAX.saturating_sub(self.key.len());
            self.key.extend(bytes.iter().take(room));
        }
        if self.capturing
            && let Some(field) = self.field
        {
            let text = &mut self.seen.0[field];
            let room = (TEXT_MAX + 1).saturating_sub(text.len());
            text.extend(bytes.iter().take(room));
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        if self.held.len() > HELD_MAX {
            self.held = Vec::new();
            self.seen = Block::default();
            self.given_up = true;
            self.capturing = false;
            self.mode = Mode::Drop;
        }
    }

    fn react<S: Sink>(&mut self, event: Event, port: &mut Port<'_, S>) {
        let depth = self.lexer.depth();
        match event {
            Event::KeyStart => {
                self.key.clear();
                self.in_key = true;
            }
            Event::KeyEnd => {
                self.in_key = false;
                self.field = (depth == 3)
                    .then(|| FIELDS.iter().position(|name| self.is_key(name)))
                    .flatten();
            }
            Event::ValueStart(b'[') if depth == 1 && self.is_key("content") => {
                self.place = Place::Content;
                self.lexer.set_report(3);
            }
            Event::ValueStart(b'{') if depth == 2 && self.place == Place::Content => {
                self.place = Place::Block;
                self.given_up = false;
                self.seen = Block::default();
                self.mode = Mode::Hold;
            }
            Event::ValueStart(b'"') if depth == 3 && self.place == Place::Block => {
                self.capturing = !self.given_up
                    && self
                        .field
                        .is_some_and(|field| self.seen.0[field].is_empty());
            }
            Event::ValueEnd if depth == 3 && std::mem::take(&mut self.capturing) => {
                self.captured(port)
            }
            Event::ValueEnd if depth == 2 && self.place == Place::Block => self.block_ends(port),
            Event::ValueEnd if depth == 1 => {
                self.place = Place::Outside;
                self.lexer.set_report(1);
            }
            Event::Open | Event::Closing | Event::ValueStart(_) | Event::ValueEnd => {}
        }
    }

    fn is_key(&self, name: &str) -> bool {
        self.key
            .split_last()
            .is_some_and(|(_, key)| Key::new(key).eq_str(name))
    }

    /// Ends a member of the block; the block's type decides.
    fn captured<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        let is_type = self.field == Some(0);
        if let Some(text) = self.field.map(|field| &mut self.seen.0[field])
            && text.len() > TEXT_MAX
        {
            // Cut off, the text is no longer a string. A type this long is not a known one.
            *text = b" ".to_vec();
        }
        if !is_type || self.mode != Mode::Hold {
            return;
        }
        let foreign = self
            .seen
            .kind()
            .is_some_and(|kind| self.foreign.contains(&&*kind));
        if foreign {
            self.mode = Mode::Drop;
        } else {
            port.put(&self.held);
            self.mode = Mode::Pass;
            // No further member of the block is needed.
            self.lexer.set_report(2);
        }
        self.held.clear();
    }

    fn block_ends<S: Sink>(&mut self, port: &mut Port<'_, S>) {
        match self.mode {
            Mode::Pass => {}
            // A block without a type is not replaced.
            Mode::Hold => port.put(&self.held),
            Mode::Drop => {
                let mut out = BytesMut::new();
                out.put_slice(br#"{"type":"text","text":"#);
                write::string(&mut out, &(self.tell)(&self.seen));
                out.put_u8(b'}');
                port.put(&out);
            }
        }
        self.held.clear();
        self.place = Place::Content;
        self.mode = Mode::Pass;
        self.lexer.set_report(3);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn tell(block: &Block) -> String {
        let part = |name| block.text(name).map(Cow::into_owned).unwrap_or_default();
        format!(
            "{}|{}|{}|{}",
            block.kind().unwrap_or("?".into()),
            part("name"),
            part("uri"),
            part("mimeType")
        )
    }

    fn blocks() -> Blocks {
        Blocks::replacing(&["audio", "resource_link"], tell)
    }

    /// Passes the text through in chunks of these sizes, over and over.
    fn chunked(text: &str, sizes: &[usize]) -> String {
        let (mut out, mut blocks, mut at) = (BytesMut::new(), blocks(), 0);
        for size in sizes.iter().cycle() {
            let end = (at + size.max(&1)).min(text.len());
            blocks
                .feed(&Bytes::copy_from_slice(&text.as_bytes()[at..end]), &mut out)
                .unwrap();
            at = end;
            if at == text.len() {
                break;
            }
        }
        blocks.finish().unwrap();
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn r129_foreign_blocks_become_texts_and_all_else_stays_byte_for_byte() {
        for (from, to) in [
            (r#"{"content":[]}"#, r#"{"content":[]}"#),
            (
                r#"{ "a":1 , "content" : [ {"type":"audio","data":"aGk=","mimeType":"audio/wav"} ] }"#,
                r#"{ "a":1 , "content" : [ {"type":"text","text":"audio|||audio/wav"} ] }"#,
            ),
            (
                r#"{"content":[{"type":"text","text":"\u0061"}, {"name":"n\"","uri":"u:1","type":"resource_link"} ,{"type":"image"}],"z":[{"type":"audio"}]}"#,
                r#"{"content":[{"type":"text","text":"\u0061"}, {"type":"text","text":"resource_link|n\"|u:1|"} ,{"type":"image"}],"z":[{"type":"audio"}]}"#,
            ),
            // Names of members at deeper levels, and of other objects, have no effect.
            (
                r#"{"content":[{"x":{"type":"audio"},"type":"text","text":"t"}],"structuredContent":{"content":[{"type":"audio"}]}}"#,
                r#"{"content":[{"x":{"type":"audio"},"type":"text","text":"t"}],"structuredContent":{"content":[{"type":"audio"}]}}"#,
            ),
            (
                r#"{"content":[{"\u0074ype":"aud\u0069o"}]}"#,
                r#"{"content":[{"type":"text","text":"audio|||"}]}"#,
            ),
            (
                r#"{"content":[1,"audio",null,{},{"type":5},[{"type":"audio"}]]}"#,
                r#"{"content":[1,"audio",null,{},{"type":5},[{"type":"audio"}]]}"#,
            ),
            (r#"{"content":"audio"}"#, r#"{"content":"audio"}"#),
            (
                r#"{"content":{"type":"audio"}}"#,
                r#"{"content":{"type":"audio"}}"#,
            ),
        ] {
            for sizes in [&[usize::MAX / 2][..], &[1], &[2, 3], &[7]] {
                assert_eq!(chunked(from, sizes), to, "{sizes:?}");
            }
        }
    }

    #[test]
    fn what_is_held_is_bounded() {
        let data = "A".repeat(3 << 20);
        // With the type first no bytes of the block are held, and large blocks pass.
        let image = format!(r#"{{"content":[{{"type":"image","data":"{data}"}}]}}"#);
        assert_eq!(chunked(&image, &[65_536]), image);
        let audio =
            format!(r#"{{"content":[{{"type":"audio","data":"{data}","mimeType":"audio/wav"}}]}}"#);
        assert_eq!(
            chunked(&audio, &[65_536]),
            r#"{"content":[{"type":"text","text":"audio|||audio/wav"}]}"#
        );
        // The type comes last, too late to be read.
        let late =
            format!(r#"{{"content":[{{"data":"{data}","type":"image"}},{{"type":"text"}}]}}"#);
        let mut blocks = blocks();
        let mut out = BytesMut::new();
        for chunk in late.as_bytes().chunks(65_536) {
            blocks
                .feed(&Bytes::copy_from_slice(chunk), &mut out)
                .unwrap();
            assert!(blocks.held.len() <= HELD_MAX);
        }
        assert_eq!(
            out,
            r#"{"content":[{"type":"text","text":"?|||"},{"type":"text"}]}"#
        );
        let long = format!(
            r#"{{"content":[{{"type":"resource_link","name":"{}","uri":"u:1"}}]}}"#,
            "n".repeat(5_000)
        );
        assert_eq!(
            chunked(&long, &[99]),
            r#"{"content":[{"type":"text","text":"resource_link||u:1|"}]}"#
        );
    }

    fn block() -> impl Strategy<Value = Value> {
        let kind = prop::sample::select(vec![
            "text",
            "image",
            "audio",
            "resource_link",
            "resource",
            "else",
        ]);
        let texts = prop::collection::vec(
            prop::sample::select(vec!["name", "uri", "data", "mimeType", "type2", "x"]),
            0..5,
        );
        (kind, texts, "\\PC{0,9}").prop_map(|(kind, names, text)| {
            let mut block: serde_json::Map<_, _> = names
                .into_iter()
                .map(|name| (name.to_owned(), json!(text)))
                .collect();
            block.insert("type".to_owned(), json!(kind));
            Value::Object(block)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_chunks_make_no_difference_and_no_foreign_type_is_left(
            content in prop::collection::vec(block(), 0..6),
            sizes in prop::collection::vec(1_usize..20, 1..8),
        ) {
            let text = json!({ "before": [1], "content": content, "isError": false }).to_string();
            let out = chunked(&text, &sizes);
            prop_assert_eq!(&out, &chunked(&text, &[text.len()]));
            let result: Value = serde_json::from_str(&out).unwrap();
            let after = result["content"].as_array().unwrap();
            prop_assert_eq!(after.len(), content.len());
            for (before, after) in content.iter().zip(after) {
                let kind = before["type"].as_str().unwrap();
                if ["audio", "resource_link"].contains(&kind) {
                    prop_assert_eq!(&after["type"], "text");
                    prop_assert!(after["text"].as_str().unwrap().starts_with(kind));
                } else {
                    prop_assert_eq!(before, after);
                }
            }
        }
    }
}
