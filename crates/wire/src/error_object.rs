//! The JSON-RPC error object: read in parts, `data` left as bytes; and written.

use bytes::{Bytes, BytesMut};

use crate::scan;
use crate::write::ObjectWriter;

/// `{code, message, data?}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    /// One of [`crate::error_code`], or a peer's own.
    pub code: i64,
    /// The text for people.
    pub message: String,
    /// Any JSON value, as it came.
    pub data: Option<Bytes>,
}

/// An error object without an integer `code` or a string `message`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the `error` object lacks an integer `code` or a string `message`")]
pub struct ErrorObjectError;

impl ErrorObject {
    /// An error without `data`.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with `data`, which must be one JSON value.
    #[must_use]
    pub fn with_data(self, data: Bytes) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    /// Reads a checked JSON object. Unknown members are dropped.
    ///
    /// # Errors
    /// When `code` is not an integer that fits or `message` is not a string.
    pub fn parse(raw: &Bytes) -> Result<Self, ErrorObjectError> {
        let (mut code, mut message, mut data) = (None, None, None);
        for member in scan::members(raw) {
            if member.key.eq_str("code") {
                code = scan::integer(&raw[member.value]);
            } else if member.key.eq_str("message") {
                message = scan::string(&raw[member.value]).map(String::from);
            } else if member.key.eq_str("data") {
                data = Some(raw.slice(member.value));
            }
        }
        Ok(Self {
            code: code.ok_or(ErrorObjectError)?,
            message: message.ok_or(ErrorObjectError)?,
            data,
        })
    }

    /// Appends the object as JSON.
    pub fn write(&self, out: &mut BytesMut) {
        let mut object = ObjectWriter::new(out);
        object
            .integer("code", self.code)
            .string("message", &self.message);
        if let Some(data) = &self.data {
            object.raw("data", data);
        }
        object.end();
    }

    /// The object as JSON.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.write(&mut out);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn parts_survive_and_data_stays_raw() {
        let raw = Bytes::from_static(
            br#"{"data":{"n":1e0, "x":[ ]},"message":"a\nb","code":-32022,"extra":1}"#,
        );
        let error = ErrorObject::parse(&raw).unwrap();
        assert_eq!((error.code, error.message.as_str()), (-32022, "a\nb"));
        assert_eq!(error.data.as_deref(), Some(&br#"{"n":1e0, "x":[ ]}"#[..]));
        assert_eq!(
            error.to_json(),
            r#"{"code":-32022,"message":"a\nb","data":{"n":1e0, "x":[ ]}}"#
        );
    }

    #[test]
    fn wrong_types_are_refused() {
        for raw in [
            r#"{"code":1}"#,
            r#"{"message":"x"}"#,
            r#"{"code":"1","message":"x"}"#,
            r#"{"code":1.5,"message":"x"}"#,
            "[]",
        ] {
            assert_eq!(
                ErrorObject::parse(&Bytes::from_static(raw.as_bytes())),
                Err(ErrorObjectError),
                "{raw}"
            );
        }
    }
}
