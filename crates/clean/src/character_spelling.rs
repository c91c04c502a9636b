//! Characters of a JSON string as they are spelled, a byte at a time.

/// The code of bytes that spell no character. It is in no class.
pub(crate) const NOT_A_CHARACTER: u32 = u32::MAX;

/// The longest spelling of one unit: `\uXXXX`.
const MAX_SPELLING_BYTES: usize = 6;

/// The effect of a byte on the spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpellingProgress {
    /// It is not complete.
    More,
    /// The byte was its last: the code point, a code unit of a surrogate pair, or
    /// [`NOT_A_CHARACTER`].
    Complete(u32),
    /// The byte does not belong to it, and the bytes before spell no character.
    Broken,
}

/// The spelling of a character in the making: UTF-8, or an escape of JSON. Half a surrogate pair is
/// a unit of its own.
#[derive(Debug, Default)]
pub(crate) struct CharacterSpelling {
    bytes: [u8; MAX_SPELLING_BYTES],
    len: u8,
}

impl CharacterSpelling {
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes the next byte. After [`SpellingProgress::Complete`] and [`SpellingProgress::Broken`]
    /// the spelling must be cleared.
    pub(crate) fn push(&mut self, byte: u8) -> SpellingProgress {
        let progress = self.next(byte);
        if progress != SpellingProgress::Broken
            && let Some(place) = self.bytes.get_mut(usize::from(self.len))
        {
            *place = byte;
            self.len += 1;
        }
        if progress == SpellingProgress::More && usize::from(self.len) == self.complete_len() {
            return SpellingProgress::Complete(self.code());
        }
        progress
    }

    fn next(&self, byte: u8) -> SpellingProgress {
        match (self.bytes(), byte) {
            ([], b'\\' | 0xc2..=0xf4) => SpellingProgress::More,
            ([], 0x00..=0x7f) => SpellingProgress::Complete(u32::from(byte)),
            ([], _) => SpellingProgress::Complete(NOT_A_CHARACTER),
            ([b'\\'], b'u') => SpellingProgress::More,
            ([b'\\'], _) => SpellingProgress::Complete(escaped(byte)),
            ([b'\\', ..], _) if byte.is_ascii_hexdigit() => SpellingProgress::More,
            ([0xe0], 0xa0..=0xbf)
            | ([0xed], 0x80..=0x9f)
            | ([0xf0], 0x90..=0xbf)
            | ([0xf4], 0x80..=0x8f) => SpellingProgress::More,
            ([b'\\', ..] | [0xe0 | 0xed | 0xf0 | 0xf4], _) => SpellingProgress::Broken,
            (_, 0x80..=0xbf) => SpellingProgress::More,
            _ => SpellingProgress::Broken,
        }
    }

    const fn complete_len(&self) -> usize {
        match self.bytes[0] {
            b'\\' => MAX_SPELLING_BYTES,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        }
    }

    /// The code of a complete spelling of several bytes.
    fn code(&self) -> u32 {
        match self.bytes() {
            [b'\\', b'u', a, b, c, d] => hex4([*a, *b, *c, *d]).unwrap_or(NOT_A_CHARACTER),
            [first, rest @ ..] => {
                let kept = 0x7f_u32 >> (rest.len() + 1);
                rest.iter().fold(u32::from(*first) & kept, |code, byte| {
                    code << 6 | u32::from(byte & 0x3f)
                })
            }
            [] => NOT_A_CHARACTER,
        }
    }
}

/// The character that stands for itself after a backslash.
const fn escaped(byte: u8) -> u32 {
    match byte {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => 0x0a,
        b'r' => 0x0d,
        b't' => 0x09,
        b'"' | b'\\' | b'/' => byte as u32,
        _ => NOT_A_CHARACTER,
    }
}

/// The number of four hexadecimal digits.
#[inline]
pub(crate) fn hex4(digits: [u8; 4]) -> Option<u32> {
    let value = |digit: u8| HEX[usize::from(digit)];
    let [a, b, c, d] = digits.map(value);
    let code = a << 12 | b << 8 | c << 4 | d;
    (code <= 0xffff).then_some(code)
}

/// The value of each digit; other bytes have a value that is too large in any position.
const HEX: [u32; 256] = {
    let mut table = [1 << 16; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u32;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u32;
        digit += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(u32, usize)> {
        let (mut unit, mut found, mut pos) = (CharacterSpelling::default(), Vec::new(), 0);
        while pos < bytes.len() {
            match unit.push(bytes[pos]) {
                SpellingProgress::More => pos += 1,
                SpellingProgress::Complete(code) => {
                    pos += 1;
                    found.push((code, unit.bytes().len()));
                    unit.clear();
                }
                SpellingProgress::Broken => {
                    found.push((NOT_A_CHARACTER, unit.bytes().len()));
                    unit.clear();
                }
            }
        }
        found
    }

    #[test]
    fn every_character_is_read_from_utf8() {
        for character in '\0'..=char::MAX {
            if character == '\\' {
                continue;
            }
            let mut buffer = [0; 4];
            let text = character.encode_utf8(&mut buffer);
            assert_eq!(read(text.as_bytes()), [(u32::from(character), text.len())]);
        }
    }

    #[test]
    fn every_escape_is_read() {
        for code in 0..=0xffff {
            assert_eq!(read(format!("\\u{code:04x}").as_bytes()), [(code, 6)]);
            assert_eq!(read(format!("\\u{code:04X}").as_bytes()), [(code, 6)]);
        }
        let short = [
            (8, 2),
            (12, 2),
            (10, 2),
            (13, 2),
            (9, 2),
            (34, 2),
            (92, 2),
            (47, 2),
        ];
        assert_eq!(read(br#"\b\f\n\r\t\"\\\/"#), short);
    }

    #[test]
    fn bytes_that_are_no_character_are_left_out_of_the_next() {
        let none = NOT_A_CHARACTER;
        assert_eq!(read(b"\xe2\x80A"), [(none, 2), (0x41, 1)]);
        assert_eq!(
            read(b"\xf0\x80\x80\x80"),
            [(none, 1), (none, 1), (none, 1), (none, 1)]
        );
        assert_eq!(read(b"\xed\xa0\x80"), [(none, 1), (none, 1), (none, 1)]);
        assert_eq!(read(b"\xf4\x90"), [(none, 1), (none, 1)]);
        assert_eq!(read(b"\xc1\xff"), [(none, 1), (none, 1)]);
        assert_eq!(read(br"\u12x\q"), [(none, 4), (0x78, 1), (none, 2)]);
    }
}
