//! The search for bytes that may begin a removal.
//!
//! Blocks of 64 bytes are checked without an early exit, so that the compiler uses vector
//! instructions: first for printable ASCII alone, then, in other blocks, for the kinds of other
//! characters. Only a block that may contain a removal is read character by character.

use crate::character_spelling::hex4;
use crate::removals::{CharacterClass, classify};

const BLOCK: usize = 64;
/// Bytes that a pattern needs on either side of a byte.
const AROUND: usize = 2;
/// Bytes of a text that are read one by one before the first block: most texts are short.
const SHORT: usize = 16;
/// A block and the bytes around it.
type BlockWindow = [u8; BLOCK + 2 * AROUND];

/// True if no character in the text can be removed, at any position. `false` means only that a
/// closer look is needed.
///
/// This is the whole cost of a clean text: about an instruction for each byte of printable ASCII.
#[must_use]
pub fn is_quiet(bytes: &[u8]) -> bool {
    harmless_run::<false>(bytes) == bytes.len()
}

/// The length of the run of bytes at the beginning that neither end a string, nor are an escape,
/// nor may begin a removal or a flag.
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|&byte| ROUGH[usize::from(byte)])
        .unwrap_or(bytes.len())
}

/// The length of the run of characters without a rule at the beginning of a string. It ends before
/// the closing quote too.
///
/// Not generic itself, so that it is compiled here with all that it calls, for every crate that
/// feeds a stream.
pub(crate) fn text_run(bytes: &[u8]) -> usize {
    harmless_run::<true>(bytes)
}

/// The length of the run of characters without a rule at the beginning, escapes included. In a text
/// it ends before the closing quote, before a flag, before half of a surrogate pair, and before a
/// character that the bytes do not contain whole.
fn harmless_run<const TEXT: bool>(bytes: &[u8]) -> usize {
    // No escape is open before `clear`.
    let (mut pos, mut clear) = (0, 0);
    let mut slow_until = if TEXT { SHORT } else { 0 };
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
        pos = harmless_blocks::<TEXT>(bytes, pos);
        if pos >= bytes.len() {
            return bytes.len();
        }
        slow_until = pos + BLOCK;
    }
}

/// The end of the run of harmless blocks that begins at `from`; behind the last byte if the last
/// block is harmless.
fn harmless_blocks<const TEXT: bool>(bytes: &[u8], from: usize) -> usize {
    let mut pos = from;
    while pos < bytes.len() {
        let whole = pos
            .checked_sub(AROUND)
            .and_then(|from| bytes[from..].first_chunk());
        let is_harmless = match whole {
            Some(window) => is_harmless::<TEXT>(window),
            None => {
                let window = window_at_edge(bytes, pos);
                window.is_ascii() && is_harmless::<TEXT>(&window)
            }
        };
        if !is_harmless {
            break;
        }
        pos += BLOCK;
    }
    pos
}

/// The block at `pos` if its window begins before the bytes or ends behind them. Missing bytes are
/// filled with a letter that makes no backslash before it harmless.
fn window_at_edge(bytes: &[u8], pos: usize) -> BlockWindow {
    let mut window = [b'u'; BLOCK + 2 * AROUND];
    let from = pos.saturating_sub(AROUND);
    let part = &bytes[from..bytes.len().min(pos + BLOCK + AROUND)];
    window[from + AROUND - pos..][..part.len()].copy_from_slice(part);
    window
}

/// True if an odd number of backslashes ends `before`.
fn is_escaped(before: &[u8]) -> bool {
    before
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count()
        % 2
        == 1
}

const fn is_raw_control(byte: u8) -> bool {
    (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f)
}

/// True if an escape, a character of the table, a flag or the end of a string may begin with the
/// byte.
const fn rough(byte: u8) -> bool {
    is_raw_control(byte) | begins_pattern::<true>(byte)
}

/// The same for a byte that is no raw control; only a text ends with a quote.
const fn begins_pattern<const TEXT: bool>(byte: u8) -> bool {
    (TEXT & (byte == b'"')) | (byte == b'\\') | (byte == 0xc2) | (byte == 0xe2) | (byte >= 0xee)
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

/// True if the bytes show that no character in the block stops a run. `false` decides nothing: the
/// block may still be harmless.
fn is_harmless<const TEXT: bool>(window: &BlockWindow) -> bool {
    let [_, _, block @ .., _, _] = window;
    is_printable::<TEXT>(block)
        || !has_raw_control(block)
            && if block.is_ascii() {
                !has_escape::<TEXT>(window)
            } else {
                !is_rough::<TEXT>(block) || !has_pattern::<TEXT>(window)
            }
}

/// True if all bytes are printable ASCII, without escapes and, in a text, without quotes.
fn is_printable<const TEXT: bool>(block: &[u8; BLOCK]) -> bool {
    let mut seen = 0;
    for &byte in block {
        let printable = byte.wrapping_sub(b' ') <= b'~' - b' ';
        seen |= u8::from(!printable | (byte == b'\\') | (TEXT & (byte == b'"')));
    }
    seen == 0
}

fn has_raw_control(block: &[u8; BLOCK]) -> bool {
    block
        .iter()
        .fold(0, |seen, &byte| seen | u8::from(is_raw_control(byte)))
        != 0
}

/// [`has_pattern`] for ASCII without controls.
fn has_escape<const TEXT: bool>(window: &BlockWindow) -> bool {
    let mut seen = 0;
    for at in AROUND..AROUND + BLOCK {
        let [before, last, byte, next] =
            [window[at - 2], window[at - 1], window[at], window[at + 1]];
        seen |= u8::from(is_escape(byte, next) | (TEXT & is_end(before, last, byte)));
    }
    seen != 0
}

/// True if a block without raw controls has the first byte of a pattern.
fn is_rough<const TEXT: bool>(block: &[u8; BLOCK]) -> bool {
    let mut seen = 0;
    for &byte in block {
        seen |= u8::from(begins_pattern::<TEXT>(byte));
    }
    seen != 0
}

/// True if a byte in a block without raw controls may begin a pattern.
fn has_pattern<const TEXT: bool>(window: &BlockWindow) -> bool {
    let mut seen = 0;
    for at in AROUND..AROUND + BLOCK {
        let [before, last, byte, next, third] = [
            window[at - 2],
            window[at - 1],
            window[at],
            window[at + 1],
            window[at + 2],
        ];
        let c1 = (byte == 0xc2) & (next < 0xa0);
        let embedding = (next == 0x80) & (0xaa..=0xae).contains(&third);
        let isolate = (next == 0x81) & (0xa6..=0xa9).contains(&third);
        let bidi = (byte == 0xe2) & (embedding | isolate);
        let private = (byte == 0xee) | ((byte == 0xef) & (next < 0xa4)) | (byte >= 0xf1);
        let flag = (byte == 0xf0) & (next == 0x9f) & (third == 0x8f);
        let text = is_end(before, last, byte) | flag;
        seen |= u8::from(is_escape(byte, next) | c1 | bidi | private | (TEXT & text));
    }
    seen != 0
}

/// True if an escape of a code point, a backspace or a form feed may begin with these bytes.
const fn is_escape(byte: u8, next: u8) -> bool {
    (byte == b'\\') & ((next == b'u') | (next == b'b') | (next == b'f'))
}

/// True if the byte may be the quote that ends a text: behind two backslashes it may or may not be
/// escaped.
const fn is_end(before: u8, last: u8, byte: u8) -> bool {
    (byte == b'"') & ((last != b'\\') | (before == b'\\'))
}

/// The length of the character at the beginning, if no rule applies to it. For a character of
/// several bytes it is the first byte alone, since the others are harmless and may be missing.
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
        // Pairs of tags, of variation selectors and of the private planes; and in a text of the
        // flag.
        0xdb40 | 0xdb80..=0xdbff => None,
        0xd83c if TEXT => None,
        0xd800..=0xdbff if TEXT => matches!(unit(&bytes[6..])?, 0xdc00..=0xdfff).then_some(12),
        _ => (classify(code) == CharacterClass::Plain).then_some(6),
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
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;

    use super::*;

    /// Returns if a text of one character is quiet, and if it is a plain run.
    fn quiet_and_plain(character: char) -> (bool, bool) {
        let mut buffer = [b'x'; 4];
        let text = character.encode_utf8(&mut buffer);
        (
            is_quiet(text.as_bytes()),
            plain_run(text.as_bytes()) == text.len(),
        )
    }

    /// [`harmless_run`] without blocks.
    fn slow<const TEXT: bool>(bytes: &[u8]) -> usize {
        let mut pos = 0;
        while pos < bytes.len() {
            let is_rough = ROUGH[usize::from(bytes[pos])];
            match if is_rough {
                harmless::<TEXT>(&bytes[pos..])
            } else {
                Some(1)
            } {
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
            let (quiet, plain) = quiet_and_plain(character);
            if !matches!(class, CharacterClass::Plain | CharacterClass::Flag) {
                assert!(!quiet, "{character:?}");
            }
            if class != CharacterClass::Plain {
                assert!(!plain, "{character:?}");
            }
        }
        let (mut quiet, mut all) = (0, 0);
        for code in 0..=0xffff_u32 {
            let text = [format!("\\u{code:04x}"), format!("\\u{code:04X}")]
                .map(|text| is_quiet(text.as_bytes()));
            assert_eq!(text[0], text[1]);
            all += 1;
            quiet += u32::from(text[0]);
            assert!(
                classify(code) == CharacterClass::Plain || !text[0],
                "\\u{code:04x}"
            );
        }
        assert!(quiet > all * 8 / 10, "most escapes are harmless");
    }

    #[test]
    fn common_texts_need_no_cleaning() {
        for text in [
            r#"{"a":"C:\\users\\bob \"quoted\"\n\tDas ist „schön“ – nicht? It’s €5"}"#,
            "\u{feff}中文，標點。Кириллица العربية עברית 👍🏽👨‍👩‍👧 \u{200e}\u{200f}\u{061c}\u{200c}",
            "{\r\n\t\"pretty\": [\n1\n]\n}",
            r"\u4e2d\u6587 \ud83d\ude00 \u200d\u200e\u00e9",
        ] {
            assert!(is_quiet(text.as_bytes()), "{text}");
        }
        for text in [
            r"\b",
            r"\f",
            r"\u001b",
            r"\u009B",
            r"\u202e",
            r"\udb40\udc41",
            "\u{1b}",
            "\u{e000}",
            "\\",
            r"\u00",
        ] {
            assert!(!is_quiet(text.as_bytes()), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn block_scan_equals_character_scan(
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
        fn a_block_is_harmless_where_it_has_neither_control_nor_pattern(
            bytes in prop::collection::vec(
                prop_oneof![
                    40 => 0x20..0x7f_u8,
                    1 => any::<u8>(),
                    1 => prop::sample::select(b"\\\\\\\"\"ubf\n\x1b\xc2\xe2\x80\x81\xa8\xef\xf0\x9f\x8f".to_vec()),
                ],
                BLOCK + 2 * AROUND,
            ),
        ) {
            let window: &BlockWindow = bytes.first_chunk().unwrap();
            let has_control = bytes[AROUND..AROUND + BLOCK].iter().any(|byte| is_raw_control(*byte));
            prop_assert_eq!(is_harmless::<false>(window), !has_control && !has_pattern::<false>(window));
            prop_assert_eq!(is_harmless::<true>(window), !has_control && !has_pattern::<true>(window));
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
