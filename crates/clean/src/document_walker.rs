//! The path through a JSON text to the strings that are cleaned.
//!
//! Not a validator: it follows brackets, keys and strings, and takes any bytes. Input that is not
//! JSON only selects wrong strings: the walker never stops and holds no text.

use crate::character_spelling::{CharacterSpelling, NOT_A_CHARACTER, SpellingProgress};
use crate::document::{DocumentKind, DocumentNode, MAX_KEY};

/// Open brackets that are remembered: as many as weir's scan ever allows
/// (`weir_wire::JsonLimits::DEPTH_CEILING`).
///
/// Deeper ones are counted. In a part whose values are all cleaned (`structuredContent`), all
/// strings there are cleaned, keys as well; in any other part they are left.
pub const MAX_DEPTH: usize = weir_wire::JsonLimits::DEPTH_CEILING as usize;

#[derive(Clone, Copy, Debug)]
struct BracketLevel {
    node: DocumentNode,
    is_object: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkerState {
    Between {
        /// True if the next string is a key.
        before_key: bool,
    },
    /// In a string that is left as it is.
    Skipped {
        after_backslash: bool,
    },
    Key,
    Text,
}

/// The position in a document after the bytes read so far.
#[derive(Debug)]
pub(crate) struct DocumentWalker {
    levels: Vec<BracketLevel>,
    /// Open brackets beyond [`MAX_DEPTH`].
    beyond: u64,
    /// The node of the next value.
    value: DocumentNode,
    state: WalkerState,
    key: DecodedKey,
}

impl DocumentWalker {
    pub(crate) fn new(document: DocumentKind) -> Self {
        Self {
            levels: Vec::new(),
            beyond: 0,
            value: document.root(),
            state: WalkerState::Between { before_key: false },
            key: DecodedKey::default(),
        }
    }

    /// True if the next byte is in a string that is cleaned. The caller must find the end of that
    /// string, and call [`DocumentWalker::end_text`].
    pub(crate) fn is_in_text(&self) -> bool {
        self.state == WalkerState::Text
    }

    /// The closing quote of the text was read.
    pub(crate) const fn end_text(&mut self) {
        self.state = WalkerState::Between { before_key: false };
    }

    /// Reads up to the first byte in a text, or to the end. Returns the number of bytes read.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut pos = 0;
        while pos < bytes.len() {
            pos += match self.state {
                WalkerState::Text => break,
                WalkerState::Between { before_key } => self.between(&bytes[pos..], before_key),
                WalkerState::Skipped { after_backslash } => {
                    self.skip(&bytes[pos..], after_backslash)
                }
                WalkerState::Key => self.read_key(&bytes[pos..]),
            };
        }
        pos
    }

    fn between(&mut self, bytes: &[u8], mut before_key: bool) -> usize {
        for (pos, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.state = self.string(before_key);
                    return pos + 1;
                }
                b'{' | b'[' => before_key = self.open(*byte == b'{'),
                b'}' | b']' => {
                    self.close();
                    before_key = false;
                }
                b',' if self.beyond == 0 => before_key = self.comma(),
                _ => {}
            }
        }
        self.state = WalkerState::Between { before_key };
        bytes.len()
    }

    fn string(&mut self, before_key: bool) -> WalkerState {
        let reads_key = before_key
            && self
                .levels
                .last()
                .is_some_and(|level| level.node.reads_keys());
        if reads_key {
            self.key = DecodedKey::default();
            return WalkerState::Key;
        }
        if before_key {
            self.value = self
                .levels
                .last()
                .map_or(DocumentNode::Untouched, |level| level.node.member(None));
            return WalkerState::Skipped {
                after_backslash: false,
            };
        }
        if self.value.is_cleaned() {
            WalkerState::Text
        } else {
            WalkerState::Skipped {
                after_backslash: false,
            }
        }
    }

    /// Returns true if a key follows.
    fn open(&mut self, is_object: bool) -> bool {
        let node = self.value;
        if self.levels.len() >= MAX_DEPTH {
            self.beyond += 1;
            let all = node.is_cleaned() && node != DocumentNode::Text;
            self.value = if all {
                DocumentNode::Values
            } else {
                DocumentNode::Untouched
            };
            return false;
        }
        let node = node.container();
        self.levels.push(BracketLevel { node, is_object });
        self.value = if is_object {
            DocumentNode::Untouched
        } else {
            node
        };
        is_object
    }

    fn close(&mut self) {
        if self.beyond > 0 {
            self.beyond -= 1;
        } else {
            self.levels.pop();
        }
        if self.beyond == 0 {
            self.value = DocumentNode::Untouched;
        }
    }

    /// Returns true if a key follows.
    fn comma(&mut self) -> bool {
        let Some(level) = self.levels.last() else {
            return false;
        };
        self.value = if level.is_object {
            DocumentNode::Untouched
        } else {
            level.node
        };
        level.is_object
    }

    fn skip(&mut self, bytes: &[u8], after_backslash: bool) -> usize {
        let mut pos = usize::from(after_backslash);
        while let Some(found) = bytes
            .get(pos..)
            .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
        {
            pos += found;
            if bytes[pos] == b'"' {
                self.state = WalkerState::Between { before_key: false };
                return pos + 1;
            }
            pos += 2;
        }
        // Beyond the end by one: a backslash is the last byte.
        self.state = WalkerState::Skipped {
            after_backslash: pos > bytes.len(),
        };
        bytes.len()
    }

    fn read_key(&mut self, bytes: &[u8]) -> usize {
        // Most keys are plain, and whole.
        if self.key.is_new()
            && let Some(len) = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'))
            && bytes[len] == b'"'
        {
            self.end_key(Some(&bytes[..len]));
            return len + 1;
        }
        for (pos, &byte) in bytes.iter().enumerate() {
            if byte == b'"' && self.key.unit.is_empty() {
                let key = std::mem::take(&mut self.key);
                self.end_key(key.get());
                return pos + 1;
            }
            if self.key.push(byte) {
                continue;
            }
            // A malformed spelling ended in front of a byte, which may be the closing quote.
            return pos;
        }
        bytes.len()
    }

    fn end_key(&mut self, key: Option<&[u8]>) {
        self.value = self
            .levels
            .last()
            .map_or(DocumentNode::Untouched, |level| level.node.member(key));
        self.state = WalkerState::Between { before_key: false };
    }
}

/// A decoded key, as far as it can be a key of the tables.
#[derive(Debug, Default)]
struct DecodedKey {
    text: [u8; MAX_KEY],
    len: usize,
    is_other: bool,
    unit: CharacterSpelling,
}

impl DecodedKey {
    const fn is_new(&self) -> bool {
        self.len == 0 && !self.is_other && self.unit.is_empty()
    }

    /// The key, unless it is longer than all known keys, or not ASCII.
    fn get(&self) -> Option<&[u8]> {
        if self.is_other {
            None
        } else {
            self.text.get(..self.len)
        }
    }

    /// Takes a byte, unless it is the first behind a malformed spelling.
    fn push(&mut self, byte: u8) -> bool {
        let progress = self.unit.push(byte);
        let code = match progress {
            SpellingProgress::More => return true,
            SpellingProgress::Complete(code) => code,
            SpellingProgress::Broken => NOT_A_CHARACTER,
        };
        self.unit.clear();
        match (u8::try_from(code), self.text.get_mut(self.len)) {
            (Ok(ascii @ 0..=0x7f), Some(place)) => {
                *place = ascii;
                self.len += 1;
            }
            _ => self.is_other = true,
        }
        progress != SpellingProgress::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of the strings that are cleaned.
    fn texts(document: DocumentKind, json: &str) -> Vec<String> {
        let (bytes, mut found) = (json.as_bytes(), Vec::new());
        for size in [bytes.len(), 1, 3] {
            let (mut walker, mut texts) = (DocumentWalker::new(document), vec![]);
            for chunk in bytes.chunks(size) {
                let mut pos = 0;
                while pos < chunk.len() {
                    let from = pos + walker.advance(&chunk[pos..]);
                    if from > pos && walker.is_in_text() {
                        texts.push(String::new());
                    }
                    pos = from;
                    while walker.is_in_text() && pos < chunk.len() {
                        match chunk[pos] {
                            b'"' => walker.end_text(),
                            byte => texts
                                .last_mut()
                                .into_iter()
                                .for_each(|text| text.push(char::from(byte))),
                        }
                        pos += 1;
                    }
                }
            }
            assert!(
                found.is_empty() || found == texts,
                "in pieces of {size}: {texts:?}"
            );
            found = texts;
        }
        found
    }

    #[test]
    fn the_strings_of_a_tool_result() {
        let json = r#"{ "content" : [{"text":"yes1","type":"text"}, {"type":"image","data":"no","mimeType":"no"},
            {"type":"resource","resource":{"uri":"no","text":"no","blob":"no"}}, ["no", {"text":"yes2"}],
            {"type":"resource_link","uri":"no","name":"no","title":"yes3","description":"yes4","_meta":{"text":"no"}},
            "no", {"text":["no"]}, {"text":{"text":"no"}}, {"type":"text","annotations":{"audience":["no"]},"TEXT":"yes5"}],
            "structuredContent": {"no":"yes6", "a\"b":["yes7", [{"_meta":{"x":"yes8"}}], 1, null, "yes9"], "c":{}},
            "_meta":{"content":[{"text":"no"}]}, "requestState":"no", "x":[{"content":[{"text":"no"}]}],
            "inputRequests":{"k1":{"method":"no","params":{"message":"yesA","url":"no","requestedSchema":{"description":"yesB"}}}},
            "\u0073tructuredContent":"yesC", "task":{"taskId":"no","statusMessage":"yesD"}}"#;
        let expected: Vec<String> = "123456789ABCD"
            .chars()
            .map(|which| format!("yes{which}"))
            .collect();
        assert_eq!(texts(DocumentKind::ToolResult, json), expected);
    }

    #[test]
    fn the_strings_of_definitions() {
        let json = r#"{"nextCursor":"no","tools":[{"name":"no","title":"yes1","description":"yes2","annotations":{"title":"yes3","x":"no"},
            "icons":[{"src":"no"}],"_meta":{"title":"no"},
            "inputSchema":{"type":"no","title":"yes4","properties":{"title":{"description":"yes5","enum":["no"],"enumNames":["yes6"],"const":"no",
              "default":{"title":"no"},"examples":["no"],"items":[{"title":"yes7"}]},"description":{"anyOf":[{"const":"no","title":"yes8"}]}},
              "required":["no"],"$defs":{"a":{"$comment":"yes9"}},"x-other":{"title":"no"}},
            "outputSchema":{"additionalProperties":{"description":"yesA"}}}],
            "prompts":[{"arguments":[{"name":"no","description":"yesB"}]}],
            "resources":[{"uri":"no","description":"yesC","mimeType":"no"}],"resourceTemplates":[{"uriTemplate":"no","title":"yesD"}]}"#;
        let expected: Vec<String> = "123456789ABCD"
            .chars()
            .map(|which| format!("yes{which}"))
            .collect();
        assert_eq!(texts(DocumentKind::Definitions, json), expected);
        assert_eq!(
            texts(DocumentKind::Definition, r#"{"title":"yes","name":"no"}"#),
            ["yes"]
        );
    }

    #[test]
    fn the_strings_of_other_documents() {
        let cases = [
            (
                DocumentKind::PromptResult,
                r#"{"description":"yes1","messages":[{"role":"no","content":{"type":"text","text":"yes2"}},
                {"content":{"type":"resource","resource":{"text":"no"}}},{"content":{"type":"image","data":"no"}}]}"#,
                2,
            ),
            (
                DocumentKind::Instructions,
                r#"{"instructions":"yes1","serverInfo":{"name":"no","title":"yes2","version":"no"},"protocolVersion":"no","capabilities":{"x":{"title":"no"}}}"#,
                2,
            ),
            (
                DocumentKind::Error,
                r#"{"code":1,"message":"yes1","data":{"uri":"no","a":["yes2",{"url":"no","b":"yes3"}],"elicitations":[{"elicitationId":"no","message":"yes4"}]}}"#,
                4,
            ),
            (DocumentKind::Error, r#"{"data":"yes1"}"#, 1),
            (
                DocumentKind::Question,
                r#"{"systemPrompt":"yes1","messages":[{"content":[{"type":"tool_result","toolUseId":"no","content":[{"text":"yes2"}],
                "structuredContent":{"no":"yes3"}},{"type":"tool_use","input":{"text":"no"},"name":"no"}]}],"tools":[{"description":"yes4"}],
                "requestedSchema":{"properties":{"colour":{"enum":["no"],"enumNames":["yes5","yes6"]}}}}"#,
                6,
            ),
            (
                DocumentKind::Notification,
                r#"{"logger":"no","level":"no","data":{"no":["yes1"]},"message":"yes2"}"#,
                2,
            ),
            (
                DocumentKind::Task,
                r#"{"status":"no","statusMessage":"yes1","result":{"content":[{"text":"yes2"}]},"error":{"message":"yes3"},"tasks":[{"statusMessage":"yes4"}]}"#,
                4,
            ),
            (
                DocumentKind::Arguments,
                r#"{"no":["yes1"],"_meta":{"no":"yes2"}}"#,
                2,
            ),
        ];
        for (document, json, count) in cases {
            let expected: Vec<String> = (1..=count).map(|which| format!("yes{which}")).collect();
            assert_eq!(texts(document, json), expected, "{document:?}");
        }
    }

    #[test]
    fn keys_are_read_in_every_spelling() {
        for key in [r"\u0074ext", r"tex\u0074", r"t\u0065x\u0074", "Text"] {
            assert_eq!(
                texts(
                    DocumentKind::ToolResult,
                    &format!(r#"{{"content":[{{"{key}":"yes"}}]}}"#)
                ),
                ["yes"]
            );
        }
        for key in [
            "texts",
            r"te\nxt",
            r"te\u00",
            "téxt",
            "text\\",
            &"text".repeat(99),
            r"\\text",
        ] {
            let json = format!(r#"{{"content":[{{"{key}":"no"}}]}}"#);
            assert!(texts(DocumentKind::ToolResult, &json).is_empty(), "{key}");
        }
    }

    #[test]
    fn a_string_below_the_deepest_level_is_cleaned_where_all_are() {
        let deep = |open: &str, text: &str, close: &str, levels| {
            format!("{}{text}{}", open.repeat(levels), close.repeat(levels))
        };
        let inner = deep("[", r#""yes""#, "]", 400);
        assert_eq!(
            texts(
                DocumentKind::ToolResult,
                &format!(r#"{{"structuredContent":{inner},"content":[{{"text":"yes"}}]}}"#)
            ),
            ["yes", "yes"]
        );
        let inner = deep(r#"{"a":"#, r#""yes""#, "}", 400);
        let found = texts(
            DocumentKind::ToolResult,
            &format!(r#"{{"structuredContent":{inner},"content":[{{"text":"yes"}}]}}"#),
        );
        assert_eq!(
            found.iter().filter(|text| *text == "yes").count(),
            2,
            "and keys beyond the depth: {}",
            found.len()
        );
        let inner = deep(r#"{"a":"#, r#"["yes",{},"yes"]"#, "}", 300);
        let found = texts(
            DocumentKind::ToolResult,
            &format!(r#"{{"structuredContent":{inner}}}"#),
        );
        assert_eq!(
            found.iter().filter(|text| *text == "yes").count(),
            2,
            "behind a comma, too"
        );
        let inner = deep("[", r#""no""#, "]", 400);
        assert_eq!(
            texts(
                DocumentKind::ToolResult,
                &format!(r#"{{"_meta":{inner},"content":[{{"text":"yes"}}]}}"#)
            ),
            ["yes"]
        );
    }
}
