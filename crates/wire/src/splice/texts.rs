//! Changes single strings deep inside a JSON text while its bytes pass.

use bytes::Bytes;

use super::Sink;
use super::passage::Port;
use crate::lexer::{Event, Lexer};
use crate::scan::{self, Limits, ScanError};
use crate::write;

/// The longest string that is read; a longer one passes unchanged.
const LONGEST: usize = 16 << 10;
/// The longest key that is read; a longer one is not a known name.
const LONGEST_KEY: usize = 64;

/// One step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The member with this key, escapes included. Empty for a key that is too long.
    Key(Vec<u8>),
    /// The element at this index.
    At(usize),
}

/// The chooser of the strings to change, and of their new text.
pub trait Retext {
    /// Reports if the string at this path is to be read. Others pass unread.
    fn reads(&mut self, path: &[Step]) -> bool;
    /// Returns the new text of the string, or no text to leave it as it is.
    fn text(&mut self, path: &[Step], text: &str) -> Option<String>;
}

/// Passes a JSON text in chunks. Holds at most one string that is read, and the path to it.
#[derive(Debug)]
pub struct Texts {
    lexer: Lexer,
    path: Vec<Step>,
    /// The key that is being read.
    key: Option<Vec<u8>>,
    /// The string that is being read, from its opening quote on.
    held: Option<Vec<u8>>,
}

impl Texts {
    /// An editor of strings up to this depth.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        let lexer = Lexer::new(Limits::upstream(), depth);
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
    /// The bytes so far are not the beginning of a JSON text within [`Limits::upstream`].
    pub fn feed(
        &mut self,
        chunk: &Bytes,
        retext: &mut impl Retext,
        out: &mut impl Sink,
    ) -> Result<(), ScanError> {
        let mut port = Port::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            let bytes = &chunk[pos..pos + consumed];
            if let Some(key) = &mut self.key {
                key.extend_from_slice(bytes);
                key.truncate(LONGEST_KEY + 1);
            }
            match &mut self.held {
                None => port.pass(pos..pos + consumed),
                Some(held) => {
                    held.extend_from_slice(bytes);
                    if held.len() > LONGEST {
                        port.put(held);
                        self.held = None;
                    }
                }
            }
            pos += consumed;
            if let Some(event) = event {
                self.react(event, retext, &mut port);
            }
        }
        port.flush();
        Ok(())
    }

    /// Returns the held bytes of a text that broke off.
    #[must_use]
    pub fn rest(self) -> Bytes {
        self.held.unwrap_or_default().into()
    }

    fn react<S: Sink>(&mut self, event: Event, retext: &mut impl Retext, port: &mut Port<'_, S>) {
        match event {
            Event::Open => self.path.push(Step::At(0)),
            Event::KeyStart => self.key = Some(Vec::new()),
            Event::KeyEnd => {
                // Its closing quote was read with it.
                let key = self.key.take().unwrap_or_default();
                let key = if key.len() > LONGEST_KEY {
                    Vec::new()
                } else {
                    key[..key.len().saturating_sub(1)].to_vec()
                };
                self.path.pop();
                self.path.push(Step::Key(key));
            }
            Event::ValueStart(b'"') if retext.reads(&self.path) => {
                self.held = Some(Vec::new());
            }
            Event::ValueStart(_) => {}
            Event::ValueEnd => {
                if let Some(held) = self.held.take() {
                    let changed =
                        scan::string(&held).and_then(|text| retext.text(&self.path, &text));
                    match changed {
                        None => port.put(&held),
                        Some(changed) => {
                            let mut text = bytes::BytesMut::with_capacity(changed.len() + 2);
                            write::string(&mut text, &changed);
                            port.put(&text);
                        }
                    }
                }
                if let Some(Step::At(place)) = self.path.last_mut() {
                    *place += 1;
                }
            }
            Event::Closing => {
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
    struct Upper(Vec<String>);

    impl Retext for Upper {
        fn reads(&mut self, path: &[Step]) -> bool {
            matches!(path, [Step::Key(a), Step::At(_), Step::Key(u)] if a == b"a" && u == b"u")
        }

        fn text(&mut self, path: &[Step], text: &str) -> Option<String> {
            let Step::At(place) = path[1] else {
                return None;
            };
            self.0.push(format!("{place} {text}"));
            (text != "same").then(|| text.to_uppercase())
        }
    }

    #[test]
    fn strings_are_changed_however_the_text_is_cut() {
        let long = "x".repeat(LONGEST + 1);
        let key = "k".repeat(LONGEST_KEY + 9);
        let given = format!(
            r#"{{"u":"no","a" : [ {{"{key}":[{{"u":"no"}}],"u" : "caf\u00e9","v":1.50}},5,[],{{"u":"same"}},{{"u":{{"u":"no"}},"n":[[{{}}]]}},{{"u":"{long}"}}],"b":[{{"u":"no"}}]}}"#
        );
        let expected = given.replace(r#""caf\u00e9""#, "\"CAFÉ\"");
        for size in [1, 2, 3, 7, 64, 100_000] {
            let (mut texts, mut upper, mut out) =
                (Texts::new(4), Upper::default(), bytes::BytesMut::new());
            for chunk in given.as_bytes().chunks(size) {
                texts
                    .feed(&Bytes::copy_from_slice(chunk), &mut upper, &mut out)
                    .unwrap();
            }
            assert!(texts.rest().is_empty());
            assert_eq!(
                String::from_utf8_lossy(&out),
                expected,
                "in pieces of {size}"
            );
            assert_eq!(upper.0, ["0 café", "3 same"]);
        }
    }
}
