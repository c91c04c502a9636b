//! Replacement of content blocks of types that a revision does not define, while the bytes of a
//! result pass.
//!
//! `content` of a tool's result is an array of objects, each with a `type`; in a prompt, `content`
//! of each message is one such object. The caller chooses the types to replace and the replacement
//! text; this module finds the blocks. Nearly every block begins with its type, so only that much
//! is held. A block with a late type is held until the type arrives, up to a limit.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::splice::ByteSink;
use crate::splice::key_buffer::KeyBuffer;
use crate::splice::rewriter::SpliceError;
use crate::splice::splice_output::SpliceOutput;
use crate::write;

/// The most bytes held of a block without a type; after that it is replaced unseen, or passes if it
/// has a member that no replaced type has.
const MAX_HELD_BYTES: usize = 1 << 20;
/// The longest text that is kept of a replaced block.
const MAX_TEXT_BYTES: usize = 1024;

/// The members of a block that its replacement text may use.
const RENDERED_FIELDS: [&str; 6] = ["type", "name", "title", "uri", "description", "mimeType"];

/// The member of images and sounds that may be large.
const DATA: &str = "data";
/// The type of blocks that has such a member and is unknown to some revisions.
const AUDIO: &str = "audio";

/// The known members of a replaced block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacedBlock([Vec<u8>; RENDERED_FIELDS.len()]);

impl ReplacedBlock {
    /// The block's type; absent if it was too long to read.
    #[must_use]
    pub fn kind(&self) -> Option<Cow<'_, str>> {
        self.text("type")
    }

    /// A string member of the block: `name`, `title`, `uri`, `description` or `mimeType`. Absent if
    /// it is missing or longer than 1 KiB.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        let at = RENDERED_FIELDS.iter().position(|field| *field == name)?;
        scan::string(&self.0[at])
    }
}

/// The members of a result that hold its content blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockLocation {
    /// The elements of `content`: a tool's result.
    Content,
    /// `content` of each element of `messages`: a prompt.
    Messages,
}

impl BlockLocation {
    /// The member of the result that holds the blocks.
    const fn member(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Messages => "messages",
        }
    }

    /// The depth at which a block begins.
    const fn block_depth(self) -> u32 {
        match self {
            Self::Content => 2,
            Self::Messages => 3,
        }
    }
}

/// Renders the replacement text of a block.
type RenderBlock = fn(&ReplacedBlock) -> String;

/// A filter that replaces the blocks of some types by text blocks. All other bytes pass unchanged.
#[derive(Debug)]
pub struct BlockReplacer {
    lexer: JsonLexer,
    location: BlockLocation,
    foreign: &'static [&'static str],
    render: RenderBlock,
    place: BlockPosition,
    mode: BlockMode,
    held: Vec<u8>,
    /// The key being read, or read last, with its closing quote.
    key: KeyBuffer,
    field: Option<usize>,
    capturing: bool,
    /// True once the block has a member [`DATA`].
    has_data: bool,
    /// True once too much of the block was held: its members are no longer read.
    given_up: bool,
    seen: ReplacedBlock,
}

/// The lexer's position in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockPosition {
    Outside,
    /// In the array with the blocks or messages.
    Array,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockMode {
    Pass,
    Hold,
    Drop,
}

impl BlockReplacer {
    /// A filter for blocks of these types at this location; `render` makes the replacement text.
    #[must_use]
    pub fn replacing(
        location: BlockLocation,
        foreign: &'static [&'static str],
        render: fn(&ReplacedBlock) -> String,
    ) -> Self {
        Self {
            lexer: JsonLexer::new(JsonLimits::upstream(), 1),
            location,
            foreign,
            render,
            place: BlockPosition::Outside,
            mode: BlockMode::Pass,
            held: Vec::new(),
            key: KeyBuffer::default(),
            field: None,
            capturing: false,
            has_data: false,
            given_up: false,
            seen: ReplacedBlock::default(),
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
    pub fn feed(&mut self, chunk: &Bytes, out: &mut impl ByteSink) -> Result<(), SpliceError> {
        let mut output = SpliceOutput::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            let bytes = &chunk[pos..pos + consumed];
            self.read(bytes);
            match self.mode {
                BlockMode::Pass => output.pass(pos..pos + consumed),
                BlockMode::Hold => self.hold(bytes, &mut output),
                BlockMode::Drop => {}
            }
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

    /// Collects keys, and the members of a block that its replacement may use.
    fn read(&mut self, bytes: &[u8]) {
        self.key.read(bytes);
        if self.capturing
            && let Some(field) = self.field
        {
            let text = &mut self.seen.0[field];
            let room = (MAX_TEXT_BYTES + 1).saturating_sub(text.len());
            text.extend(bytes.iter().take(room));
        }
    }

    fn hold<S: ByteSink>(&mut self, bytes: &[u8], output: &mut SpliceOutput<'_, S>) {
        self.held.extend_from_slice(bytes);
        if self.held.len() > MAX_HELD_BYTES && self.has_data && !self.foreign.contains(&AUDIO) {
            self.pass_block(output);
            self.held = Vec::new();
            self.capturing = false;
        } else if self.held.len() > MAX_HELD_BYTES {
            self.held = Vec::new();
            self.seen = ReplacedBlock::default();
            self.given_up = true;
            self.capturing = false;
            self.mode = BlockMode::Drop;
        }
    }

    fn handle_event<S: ByteSink>(&mut self, event: LexerEvent, output: &mut SpliceOutput<'_, S>) {
        let depth = self.lexer.depth();
        let block_depth = self.location.block_depth();
        match event {
            LexerEvent::KeyStart => self.key.begin(),
            LexerEvent::KeyEnd => {
                self.key.end();
                let in_block = depth == block_depth + 1;
                self.field = in_block
                    .then(|| RENDERED_FIELDS.iter().position(|name| self.key.is(name)))
                    .flatten();
                self.has_data |= in_block && self.key.is(DATA);
            }
            LexerEvent::ValueStart(b'[') if depth == 1 && self.key.is(self.location.member()) => {
                self.place = BlockPosition::Array;
                self.lexer.set_report(block_depth);
            }
            LexerEvent::ValueStart(b'{')
                if depth == block_depth
                    && self.place == BlockPosition::Array
                    && self.is_block() =>
            {
                self.place = BlockPosition::Block;
                self.given_up = false;
                self.has_data = false;
                self.seen = ReplacedBlock::default();
                self.mode = BlockMode::Hold;
                self.lexer.set_report(block_depth + 1);
            }
            // An element of the array: the last key is not one of its members.
            LexerEvent::ValueStart(_) if depth == 2 => self.key.clear(),
            LexerEvent::ValueStart(b'"')
                if depth == block_depth + 1 && self.place == BlockPosition::Block =>
            {
                self.capturing = !self.given_up
                    && self
                        .field
                        .is_some_and(|field| self.seen.0[field].is_empty());
            }
            LexerEvent::ValueEnd
                if depth == block_depth + 1 && std::mem::take(&mut self.capturing) =>
            {
                self.field_ends(output)
            }
            LexerEvent::ValueEnd if depth == block_depth && self.place == BlockPosition::Block => {
                self.block_ends(output)
            }
            LexerEvent::ValueEnd if depth == 1 => {
                self.place = BlockPosition::Outside;
                self.lexer.set_report(1);
            }
            LexerEvent::Open
            | LexerEvent::Closing
            | LexerEvent::ValueStart(_)
            | LexerEvent::ValueEnd => {}
        }
    }

    /// Returns true if an object that begins at the depth of blocks is a block.
    fn is_block(&self) -> bool {
        match self.location {
            BlockLocation::Content => true,
            BlockLocation::Messages => self.key.is("content"),
        }
    }

    /// Ends a member of the block; the block's type decides.
    fn field_ends<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        let is_type = self.field == Some(0);
        if let Some(text) = self.field.map(|field| &mut self.seen.0[field])
            && text.len() > MAX_TEXT_BYTES
        {
            // Cut off, the text is no longer a string. A type this long is not a known one.
            *text = b" ".to_vec();
        }
        if !is_type || self.mode != BlockMode::Hold {
            return;
        }
        let foreign = self
            .seen
            .kind()
            .is_some_and(|kind| self.foreign.contains(&&*kind));
        if foreign {
            self.mode = BlockMode::Drop;
        } else {
            self.pass_block(output);
        }
        self.held.clear();
    }

    /// Emits what is held of a block that is not replaced. No further member of it is needed.
    fn pass_block<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        output.put(&self.held);
        self.mode = BlockMode::Pass;
        self.lexer.set_report(self.location.block_depth());
    }

    fn block_ends<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        match self.mode {
            BlockMode::Pass => {}
            // A block without a type is not replaced.
            BlockMode::Hold => output.put(&self.held),
            BlockMode::Drop => {
                let mut out = BytesMut::new();
                out.put_slice(br#"{"type":"text","text":"#);
                write::string(&mut out, &(self.render)(&self.seen));
                out.put_u8(b'}');
                output.put(&out);
            }
        }
        self.held.clear();
        self.place = BlockPosition::Array;
        self.mode = BlockMode::Pass;
        self.lexer.set_report(self.location.block_depth());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn tell(block: &ReplacedBlock) -> String {
        let part = |name| block.text(name).map(Cow::into_owned).unwrap_or_default();
        format!(
            "{}|{}|{}|{}",
            block.kind().unwrap_or("?".into()),
            part("name"),
            part("uri"),
            part("mimeType")
        )
    }

    fn blocks(location: BlockLocation) -> BlockReplacer {
        BlockReplacer::replacing(location, &["audio", "resource_link"], tell)
    }

    /// Passes a tool's result through in chunks of these sizes, over and over.
    fn chunked(text: &str, sizes: &[usize]) -> String {
        chunked_at(BlockLocation::Content, text, sizes)
    }

    fn chunked_at(location: BlockLocation, text: &str, sizes: &[usize]) -> String {
        let (mut out, mut blocks, mut at) = (BytesMut::new(), blocks(location), 0);
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

    // Proves R129.
    #[test]
    fn foreign_blocks_become_texts_and_all_else_stays_byte_for_byte() {
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
            (
                r#"{"messages":[{"content":{"type":"audio"}}],"content":[]}"#,
                r#"{"messages":[{"content":{"type":"audio"}}],"content":[]}"#,
            ),
        ] {
            for sizes in [&[usize::MAX / 2][..], &[1], &[2, 3], &[7]] {
                assert_eq!(chunked(from, sizes), to, "{sizes:?}");
            }
        }
    }

    #[test]
    fn foreign_blocks_of_a_prompts_messages_become_texts() {
        for (from, to) in [
            (r#"{"messages":[]}"#, r#"{"messages":[]}"#),
            (
                r#"{ "description":"d", "messages" : [ {"role":"user", "content" : {"type":"audio","data":"aGk=","mimeType":"audio/wav"} } ] }"#,
                r#"{ "description":"d", "messages" : [ {"role":"user", "content" : {"type":"text","text":"audio|||audio/wav"} } ] }"#,
            ),
            (
                r#"{"messages":[{"content":{"name":"n","uri":"u:1","type":"resource_link"},"role":"user"},{"role":"user","content":{"type":"text","text":"\u0061"}},{"c\u006fntent":{"type":"audio"}}],"z":[{"content":{"type":"audio"}}]}"#,
                r#"{"messages":[{"content":{"type":"text","text":"resource_link|n|u:1|"},"role":"user"},{"role":"user","content":{"type":"text","text":"\u0061"}},{"c\u006fntent":{"type":"text","text":"audio|||"}}],"z":[{"content":{"type":"audio"}}]}"#,
            ),
            // Other members of messages, and objects that are not `content`, stay.
            (
                r#"{"content":[{"type":"audio"}],"messages":[{"type":"audio"},{"x":{"type":"audio"},"content":{"type":"image","x":{"type":"audio"}}}]}"#,
                r#"{"content":[{"type":"audio"}],"messages":[{"type":"audio"},{"x":{"type":"audio"},"content":{"type":"image","x":{"type":"audio"}}}]}"#,
            ),
            (
                r#"{"messages":[{"content":5},[{"type":"audio"}],[{"content":1},{"type":"audio"}],{"content":[{"type":"audio"}]},"content",null,{"y":{"content":{"type":"audio"}}}]}"#,
                r#"{"messages":[{"content":5},[{"type":"audio"}],[{"content":1},{"type":"audio"}],{"content":[{"type":"audio"}]},"content",null,{"y":{"content":{"type":"audio"}}}]}"#,
            ),
            (
                r#"{"messages":{"content":{"type":"audio"}}}"#,
                r#"{"messages":{"content":{"type":"audio"}}}"#,
            ),
        ] {
            for sizes in [&[usize::MAX / 2][..], &[1], &[2, 3], &[7]] {
                let out = chunked_at(BlockLocation::Messages, from, sizes);
                assert_eq!(out, to, "{sizes:?}");
            }
        }
        // A large block passes without being held.
        let data = "A".repeat(3 << 20);
        let image = format!(
            r#"{{"messages":[{{"role":"user","content":{{"type":"image","data":"{data}"}}}}]}}"#
        );
        assert_eq!(
            chunked_at(BlockLocation::Messages, &image, &[65_536]),
            image
        );
    }

    #[test]
    fn held_bytes_are_bounded() {
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
        let mut blocks = blocks(BlockLocation::Content);
        let mut out = BytesMut::new();
        for chunk in late.as_bytes().chunks(65_536) {
            blocks
                .feed(&Bytes::copy_from_slice(chunk), &mut out)
                .unwrap();
            assert!(blocks.held.len() <= MAX_HELD_BYTES);
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

    #[test]
    fn a_large_image_passes_with_its_type_at_the_end_where_no_type_with_data_is_replaced() {
        let data = "A".repeat(3 << 20);
        let mut links = BlockReplacer::replacing(BlockLocation::Content, &["resource_link"], tell);
        let late = format!(
            r#"{{"content":[{{"data":"{data}","name":"n","type":"image"}},{{"type":"resource_link","uri":"u:1"}}]}}"#
        );
        let mut out = BytesMut::new();
        for chunk in late.as_bytes().chunks(65_536) {
            links
                .feed(&Bytes::copy_from_slice(chunk), &mut out)
                .unwrap();
            assert!(links.held.len() <= MAX_HELD_BYTES);
        }
        links.finish().unwrap();
        let link = r#"{"type":"resource_link","uri":"u:1"}"#;
        let text = r#"{"type":"text","text":"resource_link||u:1|"}"#;
        assert_eq!(out, late.replace(link, text));
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
