//! Changes single strings deep inside a JSON text while its bytes pass.

use bytes::Bytes;

use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::scan::scan_error::ScanError;
use crate::splice::ByteSink;
use crate::splice::splice_output::SpliceOutput;
use crate::write;

/// The longest string that is read; a longer one passes unchanged.
const MAX_STRING_BYTES: usize = 16 << 10;
/// The longest key that is read; a longer one is not a known name.
const MAX_PATH_KEY_BYTES: usize = 64;

/// One step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The member with this key, escapes included. Empty for a key that is too long.
    Key(Vec<u8>),
    /// The element at this index.
    At(usize),
}

/// The chooser of the strings to change, and of their new text.
pub trait StringEdit {
    /// Reports if the string at this path is to be read. Others pass unread.
    fn reads(&mut self, path: &[PathStep]) -> bool;
    /// Returns the new text of the string, or no text to leave it as it is.
    fn text(&mut self, path: &[PathStep], text: &str) -> Option<String>;
}

/// Passes a JSON text in chunks. Holds at most one string that is read, and the path to it.
#[derive(Debug)]
pub struct StringEditor {
    lexer: JsonLexer,
    path: Vec<PathStep>,
    /// The key that is being read.
    key: Option<Vec<u8>>,
    /// The string that is being read, from its opening quote on.
    held: Option<Vec<u8>>,
}

impl StringEditor {
    /// An editor of strings up to this depth.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        let lexer = JsonLexer::new(JsonLimits::upstream(), depth);
        Self {
            lexer,
            path: Vec::new(),
            key: None,
            held: None,
        }
    }

    /// Takes the next chunk and emits the decided bytes.
    ///
    /// # Errors
    /// The bytes so far are not the beginning of a JSON text within [`JsonLimits::upstream`].
    pub fn feed(
        &mut self,
        chunk: &Bytes,
        retext: &mut impl StringEdit,
        out: &mut impl ByteSink,
    ) -> Result<(), ScanError> {
        let mut output = SpliceOutput::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            let bytes = &chunk[pos..pos + consumed];
            if let Some(key) = &mut self.key {
                key.extend_from_slice(bytes);
                key.truncate(MAX_PATH_KEY_BYTES + 1);
            }
            match &mut self.held {
                None => output.pass(pos..pos + consumed),
                Some(held) => {
                    held.extend_from_slice(bytes);
                    if held.len() > MAX_STRING_BYTES {
                        output.put(held);
                        self.held = None;
                    }
                }
            }
            pos += consumed;
            if let Some(event) = event {
                self.handle_event(event, retext, &mut output);
            }
        }
        output.flush();
        Ok(())
    }

    fn handle_event<S: ByteSink>(
        &mut self,
        event: LexerEvent,
        retext: &mut impl StringEdit,
        output: &mut SpliceOutput<'_, S>,
    ) {
        match event {
            LexerEvent::Open => self.path.push(PathStep::At(0)),
            LexerEvent::KeyStart => self.key = Some(Vec::new()),
            LexerEvent::KeyEnd => {
                // Its closing quote was read with it.
                let key = self.key.take().unwrap_or_default();
                let key = if key.len() > MAX_PATH_KEY_BYTES {
                    Vec::new()
                } else {
                    key[..key.len().saturating_sub(1)].to_vec()
                };
                self.path.pop();
                self.path.push(PathStep::Key(key));
            }
            LexerEvent::ValueStart(b'"') if retext.reads(&self.path) => {
                self.held = Some(Vec::new());
            }
            LexerEvent::ValueStart(_) => {}
            LexerEvent::ValueEnd => {
                if let Some(held) = self.held.take() {
                    let changed =
                        scan::string(&held).and_then(|text| retext.text(&self.path, &text));
                    match changed {
                        None => output.put(&held),
                        Some(changed) => {
                            let mut text = bytes::BytesMut::with_capacity(changed.len() + 2);
                            write::string(&mut text, &changed);
                            output.put(&text);
                        }
                    }
                }
                if let Some(PathStep::At(place)) = self.path.last_mut() {
                    *place += 1;
                }
            }
            LexerEvent::Closing => {
                self.path.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Changes `a[*].u`, and records the paths it was asked about.
    #[derive(Default)]
    struct UppercaseEdit(Vec<String>);

    impl StringEdit for UppercaseEdit {
        fn reads(&mut self, path: &[PathStep]) -> bool {
            matches!(path, [PathStep::Key(a), PathStep::At(_), PathStep::Key(u)] if a == b"a" && u == b"u")
        }

        fn text(&mut self, path: &[PathStep], text: &str) -> Option<String> {
            let PathStep::At(place) = path[1] else {
                return None;
            };
            self.0.push(format!("{place} {text}"));
            (text != "same").then(|| text.to_uppercase())
        }
    }

    #[test]
    fn strings_are_changed_however_the_text_is_cut() {
        let long = "x".repeat(MAX_STRING_BYTES + 1);
        let key = "k".repeat(MAX_PATH_KEY_BYTES + 9);
        let given = format!(
            r#"{{"u":"no","a" : [ {{"{key}":[{{"u":"no"}}],"u" : "caf\u00e9","v":1.50}},5,[],{{"u":"same"}},{{"u":{{"u":"no"}},"n":[[{{}}]]}},{{"u":"{long}"}}],"b":[{{"u":"no"}}]}}"#
        );
        let expected = given.replace(r#""caf\u00e9""#, "\"CAFÉ\"");
        for size in [1, 2, 3, 7, 64, 100_000] {
            let (mut texts, mut upper, mut out) = (
                StringEditor::new(4),
                UppercaseEdit::default(),
                bytes::BytesMut::new(),
            );
            for chunk in given.as_bytes().chunks(size) {
                texts
                    .feed(&Bytes::copy_from_slice(chunk), &mut upper, &mut out)
                    .unwrap();
            }
            assert_eq!(
                String::from_utf8_lossy(&out),
                expected,
                "in pieces of {size}"
            );
            assert_eq!(upper.0, ["0 café", "3 same"]);
        }
    }
}
