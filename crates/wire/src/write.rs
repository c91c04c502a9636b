//! Writing JSON without a tree: strings, objects and JSON-RPC envelopes straight into a buffer.
//!
//! Raw values given here must be JSON already; they are not checked.

mod envelopes;

use bytes::{BufMut, Bytes, BytesMut};

use crate::plain_runs;

pub use envelopes::{error_response, notification, request, response, response_head};

/// Appends `text` as a JSON string.
pub fn string(out: &mut BytesMut, text: &str) {
    let bytes = text.as_bytes();
    if plain_runs::plain_len(bytes) == bytes.len() {
        return quoted(out, false, bytes, false);
    }
    out.reserve(text.len() + 8);
    out.put_u8(b'"');
    escaped(out, text);
    out.put_u8(b'"');
}

/// Appends `text` escaped, without the quotes of a JSON string.
pub fn escaped(out: &mut BytesMut, text: &str) {
    let mut rest = text.as_bytes();
    let mut at = plain_runs::plain_len(rest);
    while at < rest.len() {
        out.put_slice(&rest[..at]);
        escape(out, rest[at]);
        rest = &rest[at + 1..];
        at = plain_runs::plain_len(rest);
    }
    out.put_slice(rest);
}

/// Appends a string that needs no escapes, with the punctuation around it, in one step: an object
/// consists of many such.
fn quoted(out: &mut BytesMut, comma: bool, plain: &[u8], colon: bool) {
    let start = out.len() + usize::from(comma);
    let end = start + plain.len() + 2;
    out.resize(end + usize::from(colon), b'"');
    if comma {
        out[start - 1] = b',';
    }
    out[start + 1..end - 1].copy_from_slice(plain);
    if colon {
        out[end] = b':';
    }
}

fn escape(out: &mut BytesMut, byte: u8) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        8 => b'b',
        12 => b'f',
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.put_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
            return;
        }
    };
    out.put_slice(&[b'\\', short]);
}

/// Writes one JSON object member by member. The caller keeps keys unique. Only
/// [`ObjectWriter::end`] closes the object.
#[derive(Debug)]
pub struct ObjectWriter<'a> {
    out: &'a mut BytesMut,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object at the end of `out`.
    pub fn new(out: &'a mut BytesMut) -> Self {
        out.put_u8(b'{');
        Self { out, empty: true }
    }

    /// A member whose value is JSON already.
    pub fn raw(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.key(key).put_slice(value);
        self
    }

    /// A string member.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        string(self.key(key), value);
        self
    }

    /// An integer member.
    pub fn integer(&mut self, key: &str, value: i64) -> &mut Self {
        self.raw(key, value.to_string().as_bytes())
    }

    /// A boolean member.
    pub fn boolean(&mut self, key: &str, value: bool) -> &mut Self {
        self.raw(key, if value { b"true" } else { b"false" })
    }

    /// A member whose value `write` appends.
    pub fn with(&mut self, key: &str, write: impl FnOnce(&mut BytesMut)) -> &mut Self {
        write(self.key(key));
        self
    }

    /// Appends a member from other JSON: `key` is the bytes between its quotes, escapes included
    /// ([`crate::scan::MemberKey::raw`]).
    pub fn raw_member(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.raw_with(key, |out| out.put_slice(value))
    }

    /// Appends such a member with a value that `write` appends.
    pub fn raw_with(&mut self, key: &[u8], write: impl FnOnce(&mut BytesMut)) -> &mut Self {
        quoted(self.out, !std::mem::take(&mut self.empty), key, true);
        write(self.out);
        self
    }

    /// Writes the key and leaves the value to the caller.
    pub fn key(&mut self, key: &str) -> &mut BytesMut {
        let is_later = !std::mem::take(&mut self.empty);
        if plain_runs::plain_len(key.as_bytes()) == key.len() {
            quoted(self.out, is_later, key.as_bytes(), true);
        } else {
            if is_later {
                self.out.put_u8(b',');
            }
            string(self.out, key);
            self.out.put_u8(b':');
        }
        self.out
    }

    /// Closes the object.
    pub fn end(&mut self) {
        self.out.put_u8(b'}');
    }
}

/// The object that names a task: the params of requests about it, and the related task in the
/// `_meta` of messages.
#[must_use]
pub fn task_params(name: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(name.len() + 16);
    ObjectWriter::new(&mut out).string("taskId", name).end();
    out.freeze()
}

/// A message as one line, for stdio: line breaks between its tokens become blanks, and inside
/// strings they are escaped.
#[must_use]
pub fn stdio_line(message: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(message.len() + 1);
    line.put_slice(message);
    line.iter_mut()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .for_each(|byte| *byte = b' ');
    line.put_u8(b'\n');
    line.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn a_written_string_reads_back(text in any::<String>()) {
            let mut out = BytesMut::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
            prop_assert_eq!(crate::scan::string(&out).unwrap(), text);
        }
    }
}
