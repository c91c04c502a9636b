//! The search for bytes that may begin something that is removed.
//!
//! Blocks of 64 bytes are looked at without an early exit, which the compiler turns into vector instructions: first for bytes that could
//! matter at all, then, where one does, for whole patterns. Only a block that has one is looked at character by character.

use crate::kind::{Class, classify};
use crate::unit::hex4;

const BLOCK: usize = 64;
/// Bytes that a pattern needs on either side of a byte.
const AROUND: usize = 2;
/// Bytes that are looked at one by one before the first block: most strings are short.
const SHORT: usize = 16;

/// Whether nothing in the text can be removed, wherever it stands. `false` says only that a closer look is needed.
///
/// This is the whole cost of a text that is clean: some hundred nanoseconds for 1 KiB.
#[must_use]
pub fn is_quiet(bytes: &[u8]) -> bool {
    harmless_run::<false>(bytes) == bytes.len()
}

/// The length of the run of bytes at the beginning that neither end a string, nor are an escape, nor may begin anything that is removed or
/// a flag.
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| ROUGH[usize::from(byte)]).unwrap_or(bytes.len())
}

/// The length of the run of characters at the beginning of a string that no rule is about. It ends before the closing quote too.
///
/// Not generic itself, so that it is compiled here with all that it calls, whatever crate feeds a stream.
pub(crate) fn text_run(bytes: &[u8]) -> usize {
    harmless_run::<true>(bytes)
}

/// The length of the run of characters at the beginning that no rule is about, escapes too. In a text it ends before the closing quote, before
/// a flag and before half of a surrogate pair; and before what the bytes do not show whole.
fn harmless_run<const TEXT: bool>(bytes: &[u8]) -> usize {
    // No escape is open before `clear`.
    let (mut pos, mut clear, mut slow_until) = (0, 0, SHORT);
    loop {
        while pos < slow_until.min(bytes.len()) {
            let byte = bytes[pos];
            let escaped = || matches!(byte, b'"' | b'\\') && is_escaped(&bytes[clear..pos]);
            let len = if !ROUGH[usize::from(byte)] || escaped() {
                1
            } else {
                match harmless::<TEXT>(&bytes[pos..]) {
                    Some(len) => len,
                    None => return pos,
                }
            };
            pos += len;
            clear = pos;
        }
        if pos >= bytes.len() {
            return bytes.len();
        }
        while let Some(window) = bytes[pos - AROUND..].first_chunk::<{ BLOCK + 2 * AROUND }>()
            && (!is_rough::<TEXT>(window) || !has_pattern::<TEXT>(window))
        {
            pos += BLOCK;
        }
        slow_until = pos + BLOCK;
    }
}

/// Whether an odd number of backslashes stands before.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

const fn is_raw_control(byte: u8) -> bool {
    (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f)
}

/// Whether an escape, a character of the table, a flag or the end of a string may begin with the byte.
const fn rough(byte: u8) -> bool {
    is_raw_control(byte) | (byte == b'"') | (byte == b'\\') | (byte == 0xc2) | (byte == 0xe2) | (byte >= 0xee)
}

const ROUGH: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = rough(byte as u8);
        byte += 1;
    }
    table
};

fn is_rough<const TEXT: bool>(window: &[u8; BLOCK + 2 * AROUND]) -> bool {
    let mut seen = 0;
    for &byte in &window[AROUND..AROUND + BLOCK] {
        seen |= u8::from(rough(byte) & (TEXT | (byte != b'"')));
    }
    seen != 0
}

/// Whether anything in the block may be more than harmless. Escapes count where they are of a code point, a backspace or a form feed.
fn has_pattern<const TEXT: bool>(window: &[u8; BLOCK + 2 * AROUND]) -> bool {
    let mut seen = 0;
    for at in AROUND..AROUND + BLOCK {
        let [before, last, byte, next, third] =
            [window[at - 2], window[at - 1], window[at], window[at + 1], window[at + 2]];
        let escape = (byte == b'\\') & ((next == b'u') | (next == b'b') | (next == b'f'));
        let c1 = (byte == 0xc2) & (next < 0xa0);
        let embedding = (next == 0x80) & (0xaa..=0xae).contains(&third);
        let isolate = (next == 0x81) & (0xa6..=0xa9).contains(&third);
        let bidi = (byte == 0xe2) & (embedding | isolate);
        let private = (byte == 0xee) | ((byte == 0xef) & (next < 0xa4)) | (byte >= 0xf1);
        // Behind two backslashes it may or may not be escaped.
        let quote = (byte == b'"') & ((last != b'\\') | (before == b'\\'));
        let flag = (byte == 0xf0) & (next == 0x9f) & (third == 0x8f);
        seen |= u8::from(is_raw_control(byte) | escape | c1 | bidi | private | (TEXT & (quote | flag)));
    }
    seen != 0
}

/// The length of the character at the beginning, where it is one that no rule is about; of one of several bytes that of the first, since the
/// others are harmless and may be missing.
fn harmless<const TEXT: bool>(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [b'"', ..] => (!TEXT).then_some(1),
        [b'\\', b'u', ..] => harmless_escape::<TEXT>(bytes),
        [b'\\', b'"' | b'\\' | b'/' | b'n' | b'r' | b't', ..] => Some(2),
        [0xc2, second, ..] => (!matches!(second, 0x80..=0x9f)).then_some(1),
        [0xe2, 0x80, third, ..] => (!matches!(third, 0xaa..=0xae)).then_some(1),
        [0xe2, 0x81, third, ..] => (!matches!(third, 0xa6..=0xa9)).then_some(1),
        [0xe2, 0x80 | 0x81] => None,
        [0xe2, _, ..] => Some(1),
        [0xef, second, ..] => (!matches!(second, 0x80..=0xa3)).then_some(1),
        [0xf0, 0x9f, third, ..] => (!TEXT || third != 0x8f).then_some(1),
        [0xf0, second, ..] => (!TEXT || second != 0x9f).then_some(1),
        _ => None,
    }
}

fn harmless_escape<const TEXT: bool>(bytes: &[u8]) -> Option<usize> {
    let code = unit(bytes)?;
    match code {
        // Most scripts.
        0xa0..=0x1fff | 0x3000..=0xd7ff => Some(6),
        // Pairs of tags, of variation selectors and of the private planes; and in a text of the flag.
        0xdb40 | 0xdb80..=0xdbff => None,
        0xd83c if TEXT => None,
        0xd800..=0xdbff if TEXT => matches!(unit(&bytes[6..])?, 0xdc00..=0xdfff).then_some(12),
        _ => (classify(code) == Class::Plain).then_some(6),
    }
}

/// The code unit of the escape at the beginning.
#[inline]
fn unit(bytes: &[u8]) -> Option<u32> {
    match *bytes {
        [b'\\', b'u', a, b, c, d, ..] => hex4([a, b, c, d]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether a text of one character may be removed, or stops a run.
    fn told(character: char) -> (bool, bool) {
        let mut buffer = [b'x'; 4];
        let text = character.encode_utf8(&mut buffer);
        (is_quiet(text.as_bytes()), plain_run(text.as_bytes()) == text.len())
    }

    /// [`harmless_run`] without blocks.
    fn slow<const TEXT: bool>(bytes: &[u8]) -> usize {
        let mut pos = 0;
        while pos < bytes.len() {
            let is_rough = ROUGH[usize::from(bytes[pos])];
            match if is_rough { harmless::<TEXT>(&bytes[pos..]) } else { Some(1) } {
                Some(len) => pos += len,
                None => break,
            }
        }
        pos
    }

    #[test]
    fn every_character_of_the_table_is_found() {
        for character in '\0'..=char::MAX {
            let class = classify(u32::from(character));
            let (quiet, plain) = told(character);
            if !matches!(class, Class::Plain | Class::Flag) {
                assert!(!quiet, "{character:?}");
            }
            if class != Class::Plain {
                assert!(!plain, "{character:?}");
            }
        }
        let (mut quiet, mut all) = (0, 0);
        for code in 0..=0xffff_u32 {
            let text = [format!("\\u{code:04x}"), format!("\\u{code:04X}")].map(|text| is_quiet(text.as_bytes()));
            assert_eq!(text[0], text[1]);
            all += 1;
            quiet += u32::from(text[0]);
            assert!(classify(code) == Class::Plain || !text[0], "\\u{code:04x}");
        }
        assert!(quiet > all * 8 / 10, "most escapes are harmless");
    }

    #[test]
    fn common_texts_are_quiet() {
        for text in [
            r#"{"a":"C:\\users\\bob \"quoted\"\n\tDas ist „schön“ – nicht? It’s €5"}"#,
            "\u{feff}中文，標點。Кириллица العربية עברית 👍🏽👨‍👩‍👧 \u{200e}\u{200f}\u{061c}\u{200c}",
            "{\r\n\t\"pretty\": [\n1\n]\n}",
            r"\u4e2d\u6587 \ud83d\ude00 \u200d\u200e\u00e9",
        ] {
            assert!(is_quiet(text.as_bytes()), "{text}");
        }
        for text in
            [r"\b", r"\f", r"\u001b", r"\u009B", r"\u202e", r"\udb40\udc41", "\u{1b}", "\u{e000}", "\\", r"\u00"]
        {
            assert!(!is_quiet(text.as_bytes()), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn blocks_are_as_good_as_a_look_at_every_character(
            parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..60),
            filler in 0..80_usize,
            cut in 0..4_usize,
        ) {
            let mut bytes = vec![b'x'; filler];
            bytes.extend_from_slice(parts.concat().as_bytes());
            bytes.truncate(bytes.len().saturating_sub(cut));
            prop_assert_eq!(harmless_run::<false>(&bytes), slow::<false>(&bytes));
            prop_assert_eq!(harmless_run::<true>(&bytes), slow::<true>(&bytes));
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(harmless_run::<false>(&bytes) <= bytes.len());
            prop_assert!(harmless_run::<true>(&bytes) <= bytes.len());
        }
    }

    /// Mostly harmless parts; some end a run.
    const PARTS: [&str; 30] = [
        "plain",
        "plain text of some length, ",
        "\\\\",
        "\\\\",
        "\\\\\\\\",
        "\\\"",
        "\\n",
        "\\/",
        "u",
        "b",
        "f",
        "\\\\u001b",
        "\\u00e9",
        "\\ud83d\\ude00",
        "’",
        "中，",
        "é",
        "\u{a0}",
        "😀",
        "\u{2060}",
        "\u{2064}",
        "\u{feff}",
        "\\\\\\\"",
        "\t\r\n",
        "{[1]}",
        "\u{2066}",
        "\"",
        "\u{1f3f4}",
        "\\u202e",
        "\u{e000}",
    ];
}
