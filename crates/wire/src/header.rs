//! The text codec of `Mcp-Name` and `Mcp-Param-*` values (2026-07-28, Streamable HTTP, "Value
//! encoding"), the annotation of arguments that are sent as headers, and headers that may stand
//! once.
//!
//! A header carries visible ASCII as it is and any other text as `=?base64?...?=`. This module does
//! not decide the header for a member, or the effect of a mismatch.

use std::borrow::Cow;

use data_encoding::BASE64;

use crate::scan::WordSearch;

/// The media type of one message.
pub const JSON: &str = "application/json";
/// The media type of a stream of messages.
pub const EVENTS: &str = "text/event-stream";
/// The `Accept` header of a request whose answer may be either.
pub const JSON_OR_EVENTS: &str = "application/json, text/event-stream";

/// The member of an argument's schema that requires the argument as a header, too (2026-07-28,
/// Streamable HTTP, "Custom headers").
pub const ANNOTATION: &str = "x-mcp-header";

/// The search for [`ANNOTATION`] in a tool or a schema.
pub static ANNOTATION_SEARCH: WordSearch = WordSearch::new(ANNOTATION);

/// The longest header value that is decoded, in bytes.
pub const MAX_LEN: usize = 8 * 1024;

const PREFIX: &[u8] = b"=?base64?";
const SUFFIX: &[u8] = b"?=";

/// The reasons to call a header value malformed (all are -32020).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderTextError {
    /// Longer than [`MAX_LEN`].
    #[error("the header value is longer than {MAX_LEN} bytes")]
    TooLong,
    /// A byte that is neither printable ASCII nor a tab; such text has to come as base64.
    #[error("the header value holds a control or non-ASCII character: send it as =?base64?...?=")]
    NotPrintable,
    /// Alphabet or padding between the markers is wrong.
    #[error("the header value is not valid base64 between its markers")]
    BadBase64,
    /// The decoded bytes are not UTF-8.
    #[error("the header value does not decode to UTF-8")]
    NotUtf8,
}

/// A header that may stand once in a head: of two, another reader might believe the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedHeader<V> {
    /// No such header.
    Absent,
    /// One, with this value.
    Once(V),
    /// Several: none of them counts.
    Repeated,
}

impl<V> ReceivedHeader<V> {
    /// The header with these values.
    pub fn of(values: impl IntoIterator<Item = V>) -> Self {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) => Self::Once(value),
            (Some(_), Some(_)) => Self::Repeated,
        }
    }

    /// The value of a header that stands once.
    pub fn once(self) -> Option<V> {
        match self {
            Self::Once(value) => Some(value),
            Self::Absent | Self::Repeated => None,
        }
    }
}

/// Returns the header value for `text`: the text itself if that is safe, else base64 between
/// markers. The empty text is the empty value.
#[must_use]
pub fn encode(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let edges = [bytes.first(), bytes.last()];
    let plain = bytes.iter().all(|byte| is_printable(*byte))
        && !edges.contains(&Some(&b' '))
        && marked(bytes).is_none();
    if plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("=?base64?{}?=", BASE64.encode(bytes)))
    }
}

/// Returns the text of a header value. Spaces and tabs around it do not count; a value without both
/// markers, in their exact case, is literal.
///
/// # Errors
/// The value is too long, holds more than printable ASCII and tabs, or is not valid base64 of UTF-8
/// between its markers.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, HeaderTextError> {
    if value.len() > MAX_LEN {
        return Err(HeaderTextError::TooLong);
    }
    let value = trim(value);
    if !value
        .iter()
        .all(|byte| is_printable(*byte) || *byte == b'\t')
    {
        return Err(HeaderTextError::NotPrintable);
    }
    let Some(encoded) = marked(value) else {
        return std::str::from_utf8(value)
            .map(Cow::Borrowed)
            .map_err(|_| HeaderTextError::NotUtf8);
    };
    let decoded = BASE64
        .decode(encoded)
        .map_err(|_| HeaderTextError::BadBase64)?;
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| HeaderTextError::NotUtf8)
}

fn marked(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)
}

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // Proves R018, B10.
        #[test]
        fn decode_undoes_encode(text in any::<String>()) {
            let value = encode(&text).into_owned();
            prop_assert!(value.bytes().all(is_printable));
            if value.len() <= MAX_LEN {
                prop_assert_eq!(decode(value.as_bytes()).unwrap(), text);
            }
        }

        // Proves B10.
        #[test]
        fn decoding_never_panics_and_ascii_is_literal(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(text) = decode(&value) {
                let again = encode(&text);
                prop_assert_eq!(decode(again.as_bytes()).unwrap(), &*text);
            }
        }
    }

    // Proves R018.
    #[test]
    fn text_that_a_header_cannot_carry_is_base64() {
        assert_eq!(encode("get_weather"), "get_weather");
        assert_eq!(encode(""), "");
        assert_eq!(encode("a b"), "a b");
        assert_eq!(encode("w\u{e9}"), "=?base64?d8Op?=");
        for text in [
            " a",
            "a ",
            "\ta",
            "a\tb",
            "a\r\nX: y",
            "\0",
            "=?base64?SGVsbG8=?=",
            "=?base64??=",
        ] {
            let value = encode(text);
            assert!(value.starts_with("=?base64?"), "{text:?}");
            assert_eq!(decode(value.as_bytes()).unwrap(), text);
        }
        assert_eq!(decode(b"=?base64??=").unwrap(), "");
    }

    // Proves R015.
    #[test]
    fn whitespace_around_a_value_does_not_count() {
        assert_eq!(decode(b" \t foo\t ").unwrap(), "foo");
        assert_eq!(decode(b"  =?base64?Zm9v?= ").unwrap(), "foo");
        assert_eq!(decode(b"\ta\tb ").unwrap(), "a\tb");
    }

    // Proves R019.
    #[test]
    fn broken_padding_or_alphabet_is_malformed() {
        for value in [
            "=?base64?SGVsbG8?=",
            "=?base64?SGVs!!!?=",
            "=?base64?SGVsbG8==?=",
            "=?base64?SGVs bG8=?=",
            "=?base64?SGVsbG9=?=",
        ] {
            assert_eq!(
                decode(value.as_bytes()),
                Err(HeaderTextError::BadBase64),
                "{value}"
            );
        }
        assert_eq!(decode(b"=?base64?/w==?="), Err(HeaderTextError::NotUtf8));
    }

    // Proves R020.
    #[test]
    fn a_value_without_both_exact_markers_is_literal() {
        for value in [
            "=?base64?SGVsbG8=",
            "SGVsbG8=?=",
            "=?BASE64?SGVsbG8=?=",
            "=?Base64?SGVsbG8=?=",
            "=?base64?=",
        ] {
            assert_eq!(decode(value.as_bytes()).unwrap(), value);
        }
    }

    // Proves B10.
    #[test]
    fn a_nested_sentinel_is_decoded_once() {
        let inner = "=?base64?SGVsbG8=?=";
        assert_eq!(decode(encode(inner).as_bytes()).unwrap(), inner);
    }

    // Proves B11.
    #[test]
    fn control_characters_and_long_values_are_refused() {
        for value in [&b"a\rb"[..], b"a\nb", b"a\0b", b"a\x7fb", b"a\xc3\xa9"] {
            assert_eq!(decode(value), Err(HeaderTextError::NotPrintable));
        }
        assert!(decode(&[b'a'; MAX_LEN]).is_ok());
        assert_eq!(decode(&[b'a'; MAX_LEN + 1]), Err(HeaderTextError::TooLong));
    }
}
