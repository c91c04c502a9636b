//! The cleaned strings of a whole text, and their characters as they are spelled.

use std::borrow::Cow;
use std::ops::Range;

use crate::character_spelling::{CharacterSpelling, NOT_A_CHARACTER, SpellingProgress};
use crate::document::DocumentKind;
use crate::document_walker::DocumentWalker;

/// Iterates over the places of the strings that are cleaned, without their quotes.
pub(crate) struct CleanedStrings<'a> {
    bytes: &'a [u8],
    walker: DocumentWalker,
    pos: usize,
}

impl<'a> CleanedStrings<'a> {
    pub(crate) fn new(document: DocumentKind, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            walker: DocumentWalker::new(document),
            pos: 0,
        }
    }
}

impl Iterator for CleanedStrings<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.pos + self.walker.advance(self.bytes.get(self.pos..)?);
        if !self.walker.is_in_text() {
            self.pos = self.bytes.len();
            return None;
        }
        let mut end = start;
        loop {
            end += memchr::memchr2(b'"', b'\\', self.bytes.get(end..)?)?;
            if self.bytes[end] == b'"' {
                self.walker.end_text();
                self.pos = end + 1;
                return Some(start..end);
            }
            end += 2;
        }
    }
}

/// A character of a JSON string: as it is spelled, and its code point.
pub(crate) struct SpelledCharacter<'a> {
    pub(crate) raw: &'a [u8],
    code: u32,
}

impl SpelledCharacter<'_> {
    /// The length of the character in the result of [`decode`], in bytes.
    pub(crate) fn decoded_len(&self) -> usize {
        self.decoded().len_utf8()
    }

    fn decoded(&self) -> char {
        char::from_u32(self.code).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// Iterates over the characters between the quotes of a JSON string.
pub(crate) struct SpelledCharacters<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for SpelledCharacters<'a> {
    type Item = SpelledCharacter<'a>;

    fn next(&mut self) -> Option<SpelledCharacter<'a>> {
        let (mut code, mut len) = unit(self.0)?;
        if let 0xd800..=0xdbff = code
            && let Some((low @ 0xdc00..=0xdfff, low_len)) = unit(&self.0[len..])
        {
            code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            len += low_len;
        }
        let (raw, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(SpelledCharacter { raw, code })
    }
}

/// The unit at the beginning and its length.
fn unit(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut unit = CharacterSpelling::default();
    for byte in bytes {
        match unit.push(*byte) {
            SpellingProgress::More => {}
            SpellingProgress::Complete(code) => return Some((code, unit.bytes().len())),
            SpellingProgress::Broken => return Some((NOT_A_CHARACTER, unit.bytes().len())),
        }
    }
    (!bytes.is_empty()).then_some((NOT_A_CHARACTER, bytes.len()))
}

/// The string as a reader of the JSON has it. Half a surrogate pair, and bytes that are no
/// character, become U+FFFD.
pub(crate) fn decode(spelled: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(spelled) {
        Ok(text) if memchr::memchr(b'\\', spelled).is_none() => Cow::Borrowed(text),
        _ => Cow::Owned(
            SpelledCharacters(spelled)
                .map(|character| character.decoded())
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_and_decoded() {
        let json =
            br#"{"content":[{"text":"a\"b\\"},{"text":"\ud83d\ude00\u00e9\n\ud800x"},{"text":""},{"data":"no"}]}"#;
        let texts: Vec<_> = CleanedStrings::new(DocumentKind::ToolResult, json)
            .map(|place| decode(&json[place]).into_owned())
            .collect();
        assert_eq!(texts, ["a\"b\\", "😀é\n\u{fffd}x", ""]);
        let lens = SpelledCharacters(br"\ud83d\ude00\u00e9a\ud800")
            .map(|character| (character.raw.len(), character.decoded_len()));
        assert_eq!(lens.collect::<Vec<_>>(), [(12, 4), (6, 2), (1, 1), (6, 3)]);
    }

    #[test]
    fn unterminated_json_string_is_not_yielded() {
        for json in [
            r#"{"content":[{"text":"a"#,
            r#"{"content":[{"text":"a\"#,
            r#"{"content":[{"text":""#,
        ] {
            assert_eq!(
                CleanedStrings::new(DocumentKind::ToolResult, json.as_bytes()).count(),
                0,
                "{json}"
            );
        }
    }
}
