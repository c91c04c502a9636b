//! JSON-RPC request ids.
//!
//! An id belongs to the peer that made it: it is echoed with the very bytes it came with, and
//! compared by value and type. It is not a key across peers; weir mints its own towards upstreams.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use crate::{scan, write};

/// The longest id in bytes of JSON, quotes included.
pub const MAX_LEN: usize = 256;

/// A string or integer id, as its JSON text.
///
/// `1` and `"1"` differ; `"a"` and `"\u0061"` are equal. Cheap to clone: integers and texts up to
/// 36 bytes (a UUID) are kept in place, so that an id never keeps a request's body alive.
#[derive(Clone)]
pub struct RequestId(IdRepr);

/// Bytes kept in place: a quoted UUID.
const INLINE: usize = 38;

#[derive(Clone)]
enum IdRepr {
    Inline { len: u8, text: [u8; INLINE] },
    Heap(Bytes),
}

/// The reasons to refuse a value as an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// `null`.
    #[error("the id is null: send a string or an integer")]
    Null,
    /// A number with fraction or exponent.
    #[error("the id is not an integer: send a string or an integer without fraction or exponent")]
    NotInteger,
    /// Any other JSON value.
    #[error("the id has the wrong type: send a string or an integer")]
    WrongType,
    /// Longer than [`MAX_LEN`].
    #[error("the id is longer than {MAX_LEN} bytes: send a shorter one")]
    TooLong,
}

impl RequestId {
    /// Reads the JSON value `json` (checked JSON, whitespace around it is fine) as an id.
    ///
    /// # Errors
    /// Null, fraction, exponent, another type, or more than [`MAX_LEN`] bytes.
    pub fn from_json(json: &[u8]) -> Result<Self, IdError> {
        let text = scan::trim(json);
        if text.len() > MAX_LEN {
            return Err(IdError::TooLong);
        }
        match text.first() {
            Some(b'"') if scan::string(text).is_some() => {}
            Some(b'-' | b'0'..=b'9')
                if text[1..].iter().all(u8::is_ascii_digit) && text != b"-" => {}
            Some(b'-' | b'0'..=b'9') => return Err(IdError::NotInteger),
            Some(b'n') => return Err(IdError::Null),
            _ => return Err(IdError::WrongType),
        }
        Ok(Self::from_checked(text))
    }

    /// An id with this text. The caller avoids texts with JSON longer than [`MAX_LEN`]; they are
    /// not refused.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut out = bytes::BytesMut::with_capacity(text.len() + 2);
        write::string(&mut out, text);
        Self::from_checked(&out)
    }

    /// The JSON text, exactly as it came.
    #[must_use]
    pub fn as_json(&self) -> &[u8] {
        match &self.0 {
            IdRepr::Inline { len, text } => &text[..usize::from(*len)],
            IdRepr::Heap(text) => text,
        }
    }

    /// The number of a request whose peer sent this id back. Some servers make a text of it: `"7"`
    /// names the request 7, too.
    #[must_use]
    pub fn echoed_number(&self) -> Option<u64> {
        echoed_number(self.as_json())
    }

    /// The text, if the id is a string.
    #[must_use]
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        scan::string(self.as_json())
    }

    fn from_checked(text: &[u8]) -> Self {
        if text.len() > INLINE {
            return Self(IdRepr::Heap(Bytes::copy_from_slice(text)));
        }
        let mut inline = [0; INLINE];
        inline[..text.len()].copy_from_slice(text);
        Self(IdRepr::Inline {
            len: u8::try_from(text.len()).unwrap_or(0),
            text: inline,
        })
    }

    /// Returns the compared value: true and the text with its escapes resolved for a string, else
    /// the digits.
    fn value(&self) -> (bool, Cow<'_, [u8]>) {
        let json = self.as_json();
        match json {
            b"-0" => (false, Cow::Borrowed(b"0")),
            [b'"', inner @ .., b'"'] => (true, scan::MemberKey::new(inner).unescaped()),
            digits => (false, Cow::Borrowed(digits)),
        }
    }
}

/// The number that a peer sent back as the JSON value `json`: as an integer, or as a text of its
/// decimal digits. Applies to ids and progress tokens that are numbers of one's own.
#[must_use]
pub fn echoed_number(json: &[u8]) -> Option<u64> {
    let digits = match scan::trim(json) {
        [b'"', text @ .., b'"'] => text,
        number => number,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self::from_checked(number.to_string().as_bytes())
    }
}

impl From<i64> for RequestId {
    fn from(number: i64) -> Self {
        Self::from_checked(number.to_string().as_bytes())
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json() || self.value() == other.value()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // JSON text is free of control characters, so it is safe in a log line.
        f.write_str(&String::from_utf8_lossy(self.as_json()))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::HashSet;

    use super::*;

    // Proves R035, B07.
    #[test]
    fn null_fractions_and_other_types_are_no_ids() {
        let table: [(&[u8], IdError); 10] = [
            (b"null", IdError::Null),
            (b"1.5", IdError::NotInteger),
            (b"1.0", IdError::NotInteger),
            (b"1e3", IdError::NotInteger),
            (b"-", IdError::NotInteger),
            (b"true", IdError::WrongType),
            (b"{}", IdError::WrongType),
            (b"[1]", IdError::WrongType),
            (b"", IdError::WrongType),
            (br#""\ud800""#, IdError::WrongType),
        ];
        for (json, error) in table {
            assert_eq!(
                RequestId::from_json(json),
                Err(error),
                "{}",
                String::from_utf8_lossy(json)
            );
        }
    }

    // Proves B07.
    #[test]
    fn an_id_over_256_bytes_is_refused() {
        let id = |len: usize| format!("\"{}\"", "x".repeat(len - 2));
        assert!(RequestId::from_json(id(256).as_bytes()).is_ok());
        assert_eq!(
            RequestId::from_json(id(257).as_bytes()),
            Err(IdError::TooLong)
        );
    }

    // Proves R034, B06.
    #[test]
    fn the_exact_text_is_kept() {
        let long = format!("\"{}\"", "y".repeat(100));
        for json in [
            "0",
            "-0",
            "9007199254740993",
            "123456789012345678901234567890",
            r#""a\u0062""#,
            r#""""#,
            long.as_str(),
        ] {
            assert_eq!(
                RequestId::from_json(json.as_bytes()).unwrap().as_json(),
                json.as_bytes()
            );
        }
    }

    #[test]
    fn numbers_come_back_as_integers_or_as_texts_of_their_digits() {
        for json in ["7", r#""7""#, " 7 ", r#""07""#] {
            assert_eq!(echoed_number(json.as_bytes()), Some(7), "{json}");
        }
        for json in [
            "-7",
            "7.0",
            "null",
            r#""""#,
            r#""+7""#,
            r#"" 7""#,
            r#""7a""#,
            "18446744073709551616",
            "[7]",
            "",
        ] {
            assert_eq!(echoed_number(json.as_bytes()), None, "{json}");
        }
        assert_eq!(RequestId::from_text("12").echoed_number(), Some(12));
    }

    #[test]
    fn ids_compare_by_value_and_type() {
        let id = |json: &str| RequestId::from_json(json.as_bytes()).unwrap();
        assert_ne!(id("1"), id(r#""1""#));
        assert_ne!(id("9007199254740992"), id("9007199254740993"));
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_eq!(id("0"), id("-0"));
        let set = HashSet::from([
            id(r#""a""#),
            id("0"),
            id("1"),
            RequestId::from(7_u64),
            RequestId::from(-7_i64),
        ]);
        assert!(
            set.contains(&id(r#""\u0061""#))
                && set.contains(&id("-0"))
                && set.contains(&id("7"))
                && set.contains(&id("-7"))
        );
        assert_eq!(RequestId::from_text("q\"x").as_text().unwrap(), "q\"x");
    }
}
