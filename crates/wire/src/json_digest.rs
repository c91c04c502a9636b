//! Comparison of JSON texts by value, while their bytes pass and without keeping either.
//!
//! [`JsonDigest`] gives one number for a text. White space, the order of members and the spelling
//! of strings and numbers make no difference to it. Two values that differ have the same number by
//! chance alone, once in 2^64. That is enough to leave out a repetition, and no proof of equality.

use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::scan::json_limits::JsonLimits;
use crate::scan::json_members::lone_surrogate;
use crate::scan::scan_error::ScanError;

/// Digests one JSON text whose bytes come in chunks. The input must be UTF-8; this is not checked
/// here.
#[derive(Debug)]
pub(crate) struct JsonDigest {
    lexer: JsonLexer,
    open: Vec<ContainerDigest>,
    /// The key or scalar that is being read.
    scalar: ScalarDigest,
    /// True if the container that opens next is an object.
    is_object: bool,
    digest: Option<u64>,
}

/// An open array or object.
#[derive(Debug)]
struct ContainerDigest {
    is_object: bool,
    count: u64,
    sum: u64,
    /// The digest of the key of the member that is read.
    key: u64,
}

#[derive(Debug)]
enum ScalarDigest {
    None,
    Text {
        unescape: StringUnescaper,
        hash: FnvHash,
    },
    Number(Vec<u8>),
    /// `true`, `false` or `null`, by its first letter.
    Word(u8),
}

impl Default for JsonDigest {
    /// A digest of a text within [`JsonLimits::upstream`].
    fn default() -> Self {
        let lexer = JsonLexer::new(JsonLimits::upstream(), u32::MAX);
        Self {
            lexer,
            open: Vec::new(),
            scalar: ScalarDigest::None,
            is_object: false,
            digest: None,
        }
    }
}

impl JsonDigest {
    /// Takes the next chunk.
    ///
    /// # Errors
    /// The bytes so far are not the beginning of a JSON text within the limits.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        let mut pos = 0;
        while pos < bytes.len() {
            let (consumed, event) = self.lexer.advance(&bytes[pos..])?;
            match &mut self.scalar {
                ScalarDigest::Text { unescape, hash } => {
                    unescape.feed(&bytes[pos..pos + consumed], |text| hash.write(text));
                }
                ScalarDigest::Number(text) => text.extend_from_slice(&bytes[pos..pos + consumed]),
                ScalarDigest::None | ScalarDigest::Word(_) => {}
            }
            pos += consumed;
            if let Some(event) = event {
                self.handle_event(event);
            }
        }
        Ok(())
    }

    /// Ends the text and returns its digest, or no digest for an incomplete text.
    pub(crate) fn finish(mut self) -> Option<u64> {
        self.lexer.finish().ok()?;
        if self.digest.is_none() {
            // A number at the top level ends with the text.
            self.value_ends();
        }
        self.digest
    }

    fn handle_event(&mut self, event: LexerEvent) {
        match event {
            LexerEvent::Open => {
                self.open.push(ContainerDigest {
                    is_object: self.is_object,
                    count: 0,
                    sum: 0,
                    key: 0,
                });
            }
            LexerEvent::KeyStart => self.scalar = ScalarDigest::text(),
            LexerEvent::KeyEnd => {
                let key = std::mem::replace(&mut self.scalar, ScalarDigest::None)
                    .digest()
                    .unwrap_or_default();
                if let Some(container) = self.open.last_mut() {
                    container.key = key;
                }
            }
            LexerEvent::ValueStart(byte) => {
                self.is_object = byte == b'{';
                self.scalar = match byte {
                    b'{' | b'[' => ScalarDigest::None,
                    b'"' => ScalarDigest::text(),
                    b'-' | b'0'..=b'9' => ScalarDigest::Number(Vec::new()),
                    other => ScalarDigest::Word(other),
                };
            }
            LexerEvent::ValueEnd => self.value_ends(),
            LexerEvent::Closing => {}
        }
    }

    fn value_ends(&mut self) {
        let scalar = std::mem::replace(&mut self.scalar, ScalarDigest::None).digest();
        let Some(value) = scalar.or_else(|| self.open.pop().map(|container| container.digest()))
        else {
            return;
        };
        match self.open.last_mut() {
            Some(container) => container.add(value),
            None => self.digest = Some(value),
        }
    }
}

impl ContainerDigest {
    fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum = if self.is_object {
            // A sum, because the order of members has no meaning.
            self.sum.wrapping_add(FnvHash::of(b'm', &[self.key, value]))
        } else {
            FnvHash::of(b'e', &[self.sum, value])
        };
    }

    fn digest(&self) -> u64 {
        FnvHash::of(
            if self.is_object { b'{' } else { b'[' },
            &[self.count, self.sum],
        )
    }
}

impl ScalarDigest {
    fn text() -> Self {
        Self::Text {
            unescape: StringUnescaper::default(),
            hash: FnvHash::new(b'"'),
        }
    }

    /// The digest of the scalar, or no digest if there is no scalar.
    fn digest(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Text { unescape, mut hash } => {
                unescape.finish(|text| hash.write(text));
                Some(hash.finish())
            }
            Self::Number(text) => Some(number(&text)),
            Self::Word(letter) => Some(FnvHash::of(letter, &[])),
        }
    }
}

/// The digest of a number by its exact decimal value: `27`, `27.0` and `2.7e1` have the same one.
fn number(text: &[u8]) -> u64 {
    let (is_negative, text) = text
        .strip_prefix(b"-")
        .map_or((false, text), |rest| (true, rest));
    let e = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = e.map_or((text, &b"0"[..]), |e| (&text[..e], &text[e + 1..]));
    let point = mantissa
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(mantissa.len());
    let digits: Vec<u8> = mantissa
        .iter()
        .copied()
        .filter(u8::is_ascii_digit)
        .collect();
    let fraction = digits.len() - point;
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let trailing = digits[leading..]
        .iter()
        .rev()
        .take_while(|digit| **digit == b'0')
        .count();
    let significant = &digits[leading..digits.len() - trailing];
    let mut hash = FnvHash::new(b'0');
    if significant.is_empty() {
        return hash.finish();
    }
    hash.write(&[u8::from(is_negative)]);
    hash.write(significant);
    let power = std::str::from_utf8(exponent)
        .ok()
        .and_then(|exponent| exponent.parse::<i64>().ok())
        .and_then(|power| {
            let moved = i64::try_from(trailing)
                .ok()?
                .checked_sub(i64::try_from(fraction).ok()?)?;
            power.checked_add(moved)
        });
    match power {
        Some(power) => hash.write(format!("e{power}").as_bytes()),
        // An exponent that does not fit: numbers are equal only if they are spelled alike.
        None => hash.write(text),
    }
    hash.finish()
}

/// FNV-1a of 64 bits, finished so that the sum of several is as good as each.
#[derive(Clone, Copy, Debug)]
struct FnvHash(u64);

impl FnvHash {
    fn new(kind: u8) -> Self {
        let mut hash = Self(0xcbf2_9ce4_8422_2325);
        hash.write(&[kind]);
        hash
    }

    fn of(kind: u8, parts: &[u64]) -> u64 {
        let mut hash = Self::new(kind);
        parts
            .iter()
            .for_each(|part| hash.write(&part.to_le_bytes()));
        hash.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The last steps of SplitMix64.
    fn finish(self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Resolves the escapes of one JSON string whose bytes come in chunks, with or without its quotes.
/// A lone surrogate becomes the three bytes that it would have.
#[derive(Debug, Default)]
pub(crate) struct StringUnescaper {
    state: UnescapeState,
    /// The high surrogate of a pair, until the low one arrives.
    high: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
enum UnescapeState {
    #[default]
    None,
    Backslash,
    Hex {
        unit: u32,
        left: u8,
    },
}

impl StringUnescaper {
    /// Takes the next chunk and gives its text to `out` in pieces.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut out: impl FnMut(&[u8])) {
        while let Some(&byte) = bytes.first() {
            let taken = match self.state {
                UnescapeState::None if byte == b'\\' => {
                    self.state = UnescapeState::Backslash;
                    1
                }
                UnescapeState::None => {
                    let run = memchr::memchr(b'\\', bytes).unwrap_or(bytes.len());
                    self.end_pair(&mut out);
                    // Unescaped quotes stand around the string, not in it.
                    let text = bytes[..run].strip_prefix(b"\"").unwrap_or(&bytes[..run]);
                    out(text.strip_suffix(b"\"").unwrap_or(text));
                    run
                }
                UnescapeState::Backslash => {
                    self.escaped(byte, &mut out);
                    1
                }
                UnescapeState::Hex { unit, left } => {
                    let unit = unit << 4 | char::from(byte).to_digit(16).unwrap_or_default();
                    self.state = UnescapeState::Hex {
                        unit,
                        left: left - 1,
                    };
                    if left == 1 {
                        self.state = UnescapeState::None;
                        self.unit(unit, &mut out);
                    }
                    1
                }
            };
            bytes = &bytes[taken..];
        }
    }

    /// Ends the string.
    pub(crate) fn finish(mut self, mut out: impl FnMut(&[u8])) {
        self.end_pair(&mut out);
    }

    fn escaped(&mut self, byte: u8, out: &mut impl FnMut(&[u8])) {
        if byte == b'u' {
            self.state = UnescapeState::Hex { unit: 0, left: 4 };
            return;
        }
        self.state = UnescapeState::None;
        self.end_pair(out);
        out(&[match byte {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        }]);
    }

    /// Takes a UTF-16 code unit.
    fn unit(&mut self, unit: u32, out: &mut impl FnMut(&[u8])) {
        if let (Some(high), 0xdc00..0xe000) = (self.high, unit) {
            self.high = None;
            let character = char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (unit - 0xdc00))
                .unwrap_or_default();
            return out(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        self.end_pair(out);
        match char::from_u32(unit) {
            Some(character) => out(character.encode_utf8(&mut [0; 4]).as_bytes()),
            None if unit < 0xdc00 => self.high = Some(unit),
            None => out(&lone_surrogate(unit)),
        }
    }

    /// Ends a high surrogate that has no low one.
    fn end_pair(&mut self, out: &mut impl FnMut(&[u8])) {
        if let Some(high) = self.high.take() {
            out(&lone_surrogate(high));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{scan, testing};

    /// The digest of a text that is fed in pieces of this size.
    fn digest_in(text: &str, size: usize) -> Option<u64> {
        let mut digest = JsonDigest::default();
        for piece in text.as_bytes().chunks(size) {
            digest.feed(piece).ok()?;
        }
        digest.finish()
    }

    fn digest(text: &str) -> Option<u64> {
        digest_in(text, usize::MAX)
    }

    #[test]
    fn equal_values_alone_have_equal_digests() {
        let groups: &[&[&str]] = &[
            &["null", " null\n"],
            &["true"],
            &["false"],
            &["\"\"", "\"\" "],
            &["\"null\""],
            &["0", "-0", "0.0", "-0.0e5"],
            &["27", "27.0", "2.7e1", "2.7E+01", "270e-1", "0.027e3"],
            &["-27", "-2.70e1"],
            &["2.7", "27e-1"],
            &["9007199254740993", "9007199254740993.0"],
            &["9007199254740992"],
            &["1e99999999999999999999"],
            &["1e99999999999999999998"],
            &["[]", " [ ] "],
            &["{}", "{ }"],
            &["[[]]"],
            &["[{}]"],
            &["[1,2]", "[ 1 , 2.0 ]"],
            &["[2,1]"],
            &["[1,2,0]"],
            &["[[1],2]"],
            &["[[1,2]]"],
            &[r#"{"a":1,"b":[2]}"#, r#"{ "b" : [ 2 ], "\u0061":1.0 }"#],
            &[r#"{"a":[2],"b":1}"#],
            &[r#"{"a":{"b":1}}"#],
            &[r#"{"a":1}"#],
            &[r#"{"a":"1"}"#],
            &[r#""caf\u00e9 \ud83d\ude00 \/\n""#, "\"café 😀 /\\n\""],
            &[r#""\ud83d""#],
            &[r#""\ude00""#],
            &[r#""\ude00\ud83d""#],
            &[r#""\ud83dx""#],
            &[r#""\ud83d\n""#],
        ];
        let all: Vec<(usize, u64)> = groups
            .iter()
            .enumerate()
            .flat_map(|(nth, group)| group.iter().map(move |text| (nth, digest(text).unwrap())))
            .collect();
        for (one, first) in &all {
            for (other, second) in &all {
                assert_eq!(
                    first == second,
                    one == other,
                    "{:?} {:?}",
                    groups[*one],
                    groups[*other]
                );
            }
        }
    }

    #[test]
    fn invalid_json_has_no_digest() {
        for text in [
            "", " ", "1 2", "[1", "{\"a\":", "nul", "Hello", "{'a':1}", "-", "\"a", "[1],",
        ] {
            assert_eq!(digest(text), None, "{text}");
        }
    }

    /// The same value with the members of objects in the opposite order.
    fn turned(value: &Value, out: &mut String) {
        match value {
            Value::Object(members) => {
                let members: Vec<_> = members.iter().rev().collect();
                out.push('{');
                for (nth, (key, value)) in members.into_iter().enumerate() {
                    out.push_str(if nth == 0 { " " } else { " , " });
                    out.push_str(&testing::spell(key, nth % 2 == 0));
                    out.push_str(" : ");
                    turned(value, out);
                }
                out.push('}');
            }
            Value::Array(items) => {
                out.push('[');
                for (nth, item) in items.iter().enumerate() {
                    out.push_str(if nth == 0 { "\n" } else { ",\n" });
                    turned(item, out);
                }
                out.push(']');
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                out.push_str(&value.to_string());
            }
        }
    }

    fn has_objects(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(has_objects),
            Value::Object(members) => !members.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn neither_chunks_nor_the_order_of_members_make_a_difference(text in testing::value(), size in 1_usize..40) {
            let whole = digest(&text);
            prop_assert!(whole.is_some());
            prop_assert_eq!(digest_in(&text, size), whole);
            // A tree loses digits of large numbers, so both sides are compared after it has written
            // them.
            let value: Value = serde_json::from_str(&text).unwrap();
            let mut other = String::new();
            turned(&value, &mut other);
            prop_assert_eq!(digest(&other), digest(&value.to_string()));
            if has_objects(&value) {
                prop_assert_ne!(&other, &value.to_string());
            }
        }

        #[test]
        fn escapes_are_resolved_as_by_the_whole_string(text in testing::text(), size in 1_usize..9) {
            let (mut unescape, mut out) = (StringUnescaper::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                unescape.feed(piece, |text| out.extend_from_slice(text));
            }
            unescape.finish(|text| out.extend_from_slice(text));
            prop_assert_eq!(String::from_utf8(out).unwrap(), scan::string(text.as_bytes()).unwrap());
        }
    }
}
