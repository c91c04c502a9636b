//! The search for bytes that may begin something that is removed.
//!
//! Blocks of 64 bytes are looked at without an early exit, which the compiler turns into vector instructions; only a block with a hit is
//! looked at byte by byte.

use crate::kind::{Class, classify};
use crate::unit::hex4;

const BLOCK: usize = 64;

/// Whether nothing in the text can be removed, wherever it stands. `false` says only that a closer look is needed.
///
/// This is the whole cost of a text that is clean: some tens of nanoseconds for 1 KiB of ASCII.
#[must_use]
pub fn is_quiet(bytes: &[u8]) -> bool {
    let mut pos = 0;
    while pos < bytes.len() {
        pos += run(&bytes[pos..], is_candidate);
        if pos >= bytes.len() {
            break;
        }
        match harmless(&bytes[pos..]) {
            Some(len) => pos += len,
            None => return false,
        }
    }
    true
}

/// The length of the run of bytes at the beginning that neither end a string, nor are an escape, nor may begin anything that is removed or
/// a flag.
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    run(bytes, is_stop)
}

const fn is_raw_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t' && byte != b'\n' && byte != b'\r') || byte == 0x7f
}

/// What an escape or a character of the table begins with.
const fn is_candidate(byte: u8) -> bool {
    // 0xF0 and what no UTF-8 has begin nothing of the table; 0xEE and 0xEF do, and 0xF3 and 0xF4.
    is_raw_control(byte) | (byte == b'\\') | (byte == 0xc2) | (byte == 0xe2) | ((byte >= 0xee) & (byte != 0xf0))
}

const fn is_stop(byte: u8) -> bool {
    is_raw_control(byte) | (byte == b'"') | (byte == b'\\') | (byte == 0xc2) | (byte == 0xe2) | (byte >= 0xee)
}

/// How many bytes at the beginning the predicate does not hold for.
fn run(bytes: &[u8], hit: impl Fn(u8) -> bool) -> usize {
    let mut pos = 0;
    while let Some(block) = bytes[pos..].first_chunk::<BLOCK>() {
        if block.iter().fold(false, |seen, &byte| seen | hit(byte)) {
            break;
        }
        pos += BLOCK;
    }
    pos + bytes[pos..].iter().position(|&byte| hit(byte)).unwrap_or(bytes.len() - pos)
}

/// The length of the character at the beginning, which a candidate begins, where it is one that no rule is about.
fn harmless(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [b'\\', b'u', a, b, c, d, ..] => {
            let digits = [a, b, c, d];
            let code = hex4(&digits);
            // Surrogates of which pairs are tags, variation selectors and the private planes; an odd one costs only the closer look.
            let suspicious = classify(code) != Class::Plain || matches!(code, 0xdb40 | 0xdb80..=0xdbff);
            (digits.iter().all(u8::is_ascii_hexdigit) && !suspicious).then_some(6)
        }
        [b'\\', b'"' | b'\\' | b'/' | b'n' | b'r' | b't', ..] => Some(2),
        [0xc2, second, ..] => (second >= 0xa0).then_some(2),
        [0xe2, 0x80, third, ..] => (!matches!(third, 0xaa..=0xae)).then_some(3),
        [0xe2, 0x81, third, ..] => (!matches!(third, 0xa6..=0xa9)).then_some(3),
        [0xe2, _, _, ..] => Some(3),
        [0xef, second, ..] => (second >= 0xa4).then_some(2),
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
        #[test]
        fn a_run_ends_at_the_first_stop(bytes in prop::collection::vec(any::<u8>(), 0..300), plain_until in 0..300_usize) {
            let mut bytes = bytes;
            for byte in bytes.iter_mut().take(plain_until) {
                *byte = if is_stop(*byte) { b'!' } else { *byte };
            }
            let slow = bytes.iter().position(|&byte| is_stop(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), slow);
        }
    }
}
