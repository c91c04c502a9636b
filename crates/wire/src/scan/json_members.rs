//! Reading single members of JSON that has been checked.

use std::borrow::Cow;
use std::ops::Range;

use crate::{case_folding, plain_runs};

/// A key's bytes between its quotes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberKey<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> MemberKey<'a> {
    /// A key from the bytes between its quotes.
    #[must_use]
    pub fn new(raw: &'a [u8]) -> Self {
        Self {
            raw,
            escaped: raw.contains(&b'\\'),
        }
    }

    /// The same, for a caller that knows if there are escapes.
    pub(super) const fn with_escapes(raw: &'a [u8], escaped: bool) -> Self {
        Self { raw, escaped }
    }

    /// The bytes between the quotes, escapes and all.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Reports if the key means exactly this text. A lone surrogate equals no text.
    #[must_use]
    pub fn eq_str(&self, text: &str) -> bool {
        if self.escaped {
            *self.unescaped() == *text.as_bytes()
        } else {
            self.raw == text.as_bytes()
        }
    }

    /// The text, borrowed if it has no escapes. Absent for lone surrogates.
    #[must_use]
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match self.unescaped() {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
    }

    /// Reports if some of its characters are written as escapes.
    #[must_use]
    pub const fn is_escaped(&self) -> bool {
        self.escaped
    }

    /// The first of `names` that this key equals under simple case folding
    /// ([`crate::case_folding`]) without being one of them. The names are ASCII, and no two of them
    /// fold to the same.
    #[must_use]
    pub(crate) fn case_variant_of<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        if !self.escaped && self.raw.is_ascii() {
            let same = |name: &&&str| name.as_bytes().eq_ignore_ascii_case(self.raw);
            return names
                .iter()
                .find(same)
                .copied()
                .filter(|name| name.as_bytes() != self.raw);
        }
        // A character that folds to an ASCII letter takes at most three bytes, or six as an escape.
        let length = self.raw.len();
        let mut near = names
            .iter()
            .filter(|name| (name.len()..=name.len() * 6).contains(&length))
            .peekable();
        near.peek()?;
        let text = self.unescaped();
        let text = std::str::from_utf8(&text).ok()?;
        near.find(|name| case_folding::equal_folded(name, text))
            .copied()
            .filter(|name| *name != text)
    }

    /// The text for showing: lone surrogates become U+FFFD, so compare with [`MemberKey::eq_str`].
    #[must_use]
    pub fn decode(&self) -> Cow<'a, str> {
        match self.unescaped() {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes)
                .map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The unescaped text. A lone surrogate becomes the three bytes it would have, so that unequal
    /// keys stay unequal.
    pub(crate) fn unescaped(&self) -> Cow<'a, [u8]> {
        if self.escaped {
            Cow::Owned(unescape(self.raw))
        } else {
            Cow::Borrowed(self.raw)
        }
    }
}

/// One member of an object.
#[derive(Clone, Debug)]
pub struct JsonMember<'a> {
    /// The key.
    pub key: MemberKey<'a>,
    /// The position of the value in the bytes that were walked.
    pub value: Range<usize>,
}

/// Returns the members of the JSON object `object` (whitespace around it is fine). Other values
/// have no members.
#[must_use]
pub fn members(object: &[u8]) -> JsonMembers<'_> {
    let start = blank(object, 0);
    let at = (object.get(start) == Some(&b'{')).then_some(start + 1);
    JsonMembers { bytes: object, at }
}

/// Returns the positions of the elements of the JSON array `array`. Other values have no elements.
#[must_use]
pub fn elements(array: &[u8]) -> JsonElements<'_> {
    let start = blank(array, 0);
    let at = (array.get(start) == Some(&b'[')).then_some(start + 1);
    JsonElements { bytes: array, at }
}

/// Returns the position of the value of the member `name` in `object`.
#[must_use]
pub fn find(object: &[u8], name: &str) -> Option<Range<usize>> {
    members(object)
        .find(|member| member.key.eq_str(name))
        .map(|member| member.value)
}

/// Returns the text of a JSON string, borrowed if it has no escapes. Other values and lone
/// surrogates have no text.
#[must_use]
pub fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = trim(value).strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    MemberKey::new(inner).text()
}

/// Reports if a JSON value is the string `text`. A lone surrogate equals no text. Equal bytes
/// without escapes are not decoded.
#[must_use]
pub fn is_string(value: &[u8], text: &str) -> bool {
    let plain = value
        .strip_prefix(b"\"")
        .and_then(|inner| inner.strip_suffix(b"\""));
    let is_same = plain == Some(text.as_bytes()) && !text.contains('\\');
    is_same || string(value).as_deref() == Some(text)
}

/// The value of a JSON integer without fraction or exponent, if it fits.
#[must_use]
pub fn integer(value: &[u8]) -> Option<i64> {
    let text = trim(value);
    if text.first() == Some(&b'+') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reports if the value is an object.
#[must_use]
pub fn is_object(value: &[u8]) -> bool {
    value.get(blank(value, 0)) == Some(&b'{')
}

/// The value without JSON whitespace around it.
#[must_use]
pub fn trim(value: &[u8]) -> &[u8] {
    let start = blank(value, 0);
    let end = value
        .iter()
        .rposition(|byte| !is_blank(*byte))
        .map_or(start, |last| last + 1);
    &value[start..end]
}

/// The offset behind the value that begins at `at` (no whitespace before it). On malformed input:
/// somewhere behind `at`, at most the end.
#[must_use]
fn skip_value(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        None => bytes.len(),
        Some(b'"') => skip_string(bytes, at),
        Some(b'{' | b'[') => skip_container(bytes, at),
        Some(_) => {
            let rest = &bytes[at..];
            at + rest
                .iter()
                .position(|byte| is_blank(*byte) || matches!(byte, b',' | b'}' | b']' | b':'))
                .unwrap_or(rest.len())
                .max(1)
        }
    }
}

/// Iterator of [`members`].
#[derive(Clone, Debug)]
pub struct JsonMembers<'a> {
    bytes: &'a [u8],
    at: Option<usize>,
}

impl<'a> Iterator for JsonMembers<'a> {
    type Item = JsonMember<'a>;

    fn next(&mut self) -> Option<JsonMember<'a>> {
        let key_start = blank(self.bytes, self.at.take()?);
        if self.bytes.get(key_start) != Some(&b'"') {
            return None;
        }
        let (key_end, escaped) = string_end(self.bytes, key_start);
        let key = self.bytes.get(key_start + 1..key_end.checked_sub(1)?)?;
        let colon = blank(self.bytes, key_end);
        if self.bytes.get(colon) != Some(&b':') {
            return None;
        }
        let start = blank(self.bytes, colon + 1);
        let end = skip_value(self.bytes, start);
        self.at = after_comma(self.bytes, end);
        (start < end).then_some(JsonMember {
            key: MemberKey::with_escapes(key, escaped),
            value: start..end,
        })
    }
}

/// Iterator of [`elements`].
#[derive(Clone, Debug)]
pub struct JsonElements<'a> {
    bytes: &'a [u8],
    at: Option<usize>,
}

impl Iterator for JsonElements<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = blank(self.bytes, self.at.take()?);
        if matches!(self.bytes.get(start), None | Some(b']')) {
            return None;
        }
        let end = skip_value(self.bytes, start);
        self.at = after_comma(self.bytes, end);
        Some(start..end)
    }
}

/// Resolves the escapes of a checked string body.
fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(run) = memchr::memchr(b'\\', &raw[at..]) {
        out.extend_from_slice(&raw[at..at + run]);
        at += run + 1;
        let Some(&escape) = raw.get(at) else {
            return out;
        };
        at += 1;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => at += push_unicode(raw, at, &mut out),
            other => out.push(other),
        }
    }
    out.extend_from_slice(&raw[at..]);
    out
}

/// Decodes the hex digits at `at` (and the low half of a pair); returns the count of bytes read.
fn push_unicode(raw: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let Some(unit) = hex(raw, at) else { return 0 };
    if (0xd800..0xdc00).contains(&unit)
        && raw.get(at + 4..at + 6) == Some(b"\\u")
        && let Some(low @ 0xdc00..0xe000) = hex(raw, at + 6)
        && let Some(character) = char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
    {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return 10;
    }
    match char::from_u32(unit) {
        Some(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        None => out.extend_from_slice(&lone_surrogate(unit)),
    }
    4
}

/// The three bytes a surrogate would have if UTF-8 allowed it. They are never valid UTF-8, so they
/// equal no text.
pub(crate) fn lone_surrogate(unit: u32) -> [u8; 3] {
    let [_, _, high, low] = unit.to_be_bytes();
    [
        0xe0 | high >> 4,
        0x80 | (high & 0x0f) << 2 | low >> 6,
        0x80 | low & 0x3f,
    ]
}

fn hex(raw: &[u8], at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 4)?;
    digits.iter().try_fold(0, |unit, digit| {
        Some(unit << 4 | char::from(*digit).to_digit(16)?)
    })
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn blank(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    at
}

fn after_comma(bytes: &[u8], end: usize) -> Option<usize> {
    let comma = blank(bytes, end);
    (bytes.get(comma) == Some(&b',')).then_some(comma + 1)
}

/// Returns the offset behind the closing quote of the string that opens at `at`.
fn skip_string(bytes: &[u8], at: usize) -> usize {
    string_end(bytes, at).0
}

/// Returns the same offset, and true if the string has escapes.
fn string_end(bytes: &[u8], at: usize) -> (usize, bool) {
    let (mut pos, mut escaped) = (at + 1, false);
    while let Some(rest) = bytes.get(pos..).filter(|rest| !rest.is_empty()) {
        pos += plain_runs::unescaped_len(rest);
        match bytes.get(pos) {
            Some(b'"') => return (pos + 1, escaped),
            Some(_) => {
                escaped = true;
                pos += 2;
            }
            None => break,
        }
    }
    (bytes.len(), escaped)
}

fn skip_container(bytes: &[u8], at: usize) -> usize {
    let (mut pos, mut depth) = (at, 0_usize);
    while let Some(&byte) = bytes.get(pos) {
        match byte {
            b'"' => {
                pos = skip_string(bytes, pos);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return pos + 1;
                }
            }
            _ => {}
        }
        pos += 1;
    }
    bytes.len()
}
