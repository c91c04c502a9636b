//! Writes the members of a record. One record is one line, for any text from outside in it.

use std::fmt::Write as _;

use weir_core::is_invisible;

/// Characters of a text that a record keeps. Names and ids are shorter. A longer text is an attempt
/// to fill the disk; it is cut with a mark.
const MAX_TEXT_CHARACTERS: usize = 512;

/// An object being written at the end of a string.
pub(super) struct RecordObject<'a> {
    out: &'a mut String,
    first: bool,
}

impl<'a> RecordObject<'a> {
    /// Begins an object.
    pub(super) fn begin(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, first: true }
    }

    pub(super) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        push_text(self.out, value, MAX_TEXT_CHARACTERS);
        self
    }

    pub(super) fn optional_text(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.text(key, value);
        }
        self
    }

    pub(super) fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        // Writing into a string cannot fail.
        let _ = write!(self.out, "{value}");
        self
    }

    pub(super) fn boolean(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key);
        self.out.push_str(if value { "true" } else { "false" });
        self
    }

    /// A value that is JSON on one line already.
    pub(super) fn raw(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        self.out.push_str(value);
        self
    }

    pub(super) fn list<'t>(
        &mut self,
        key: &str,
        values: impl Iterator<Item = &'t str>,
    ) -> &mut Self {
        self.key(key);
        self.out.push('[');
        for (n, value) in values.enumerate() {
            if n > 0 {
                self.out.push(',');
            }
            push_text(self.out, value, MAX_TEXT_CHARACTERS);
        }
        self.out.push(']');
        self
    }

    /// A member that is an object itself.
    pub(super) fn object(
        &mut self,
        key: &str,
        fill: impl FnOnce(&mut RecordObject<'_>),
    ) -> &mut Self {
        self.key(key);
        let mut inner = RecordObject::begin(self.out);
        fill(&mut inner);
        inner.end();
        self
    }

    pub(super) fn end(self) {
        self.out.push('}');
    }

    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(',');
        }
        // Keys are weir's own words, or cut and escaped like any text.
        push_text(self.out, key, MAX_TEXT_CHARACTERS);
        self.out.push(':');
    }
}

/// A text as a JSON string of at most `longest` characters, with a mark if it was cut. No text can
/// end a line, move a terminal's cursor, or reverse the direction of the text beside it.
pub(super) fn push_text(out: &mut String, text: &str, longest: usize) {
    out.push('"');
    // Nearly every text is a name of plain letters: bytes are characters then.
    let first = &text.as_bytes()[..text.len().min(longest)];
    if first
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'))
    {
        out.push_str(&text[..first.len()]);
        out.push_str(if first.len() < text.len() {
            "…\""
        } else {
            "\""
        });
        return;
    }
    for (n, c) in text.chars().enumerate() {
        if n == longest {
            out.push('…');
            break;
        }
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if is_invisible(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str) -> String {
        let mut out = String::new();
        push_text(&mut out, value, MAX_TEXT_CHARACTERS);
        out
    }

    // Proves F14.
    #[test]
    fn texts_cannot_break_lines_or_terminals() {
        assert_eq!(text("a\r\nb"), r#""a\u000d\u000ab""#);
        assert_eq!(
            text("\u{1b}[2J\u{9b}31m\u{7f}"),
            r#""\u001b[2J\u009b31m\u007f""#
        );
        assert_eq!(
            text("\u{2028}\u{202e}\u{e0041}"),
            r#""\u2028\u202e\udb40\udc41""#
        );
        assert_eq!(
            text(r#"","admin":true,"x":""#),
            r#""\",\"admin\":true,\"x\":\"""#
        );
        assert_eq!(
            text(&"x".repeat(1_000_000)).chars().count(),
            MAX_TEXT_CHARACTERS + 3
        );
    }

    proptest! {
        // Proves F14.
        #[test]
        fn any_text_is_one_line_and_reads_back(value in "\\PC{0,40}|[\\x00-\\x1f\u{7f}-\u{9f}\u{2028}\"\\\\a]{0,40}") {
            let written = text(&value);
            prop_assert!(!written.chars().any(char::is_control));
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), value);
        }
    }
}
