//! Whole JSON-RPC messages: requests, notifications and responses.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error_object::ErrorObject;
use crate::id::RequestId;
use crate::write::ObjectWriter;

/// A whole request message.
#[must_use]
pub fn request(id: &RequestId, method: &str, params: Option<&[u8]>) -> Bytes {
    call(Some(id), method, params)
}

/// A whole notification message.
#[must_use]
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    call(None, method, params)
}

fn call(id: Option<&RequestId>, method: &str, params: Option<&[u8]>) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + method.len() + params.map_or(0, <[u8]>::len));
    let mut object = ObjectWriter::new(&mut out);
    object.raw("jsonrpc", b"\"2.0\"");
    if let Some(id) = id {
        object.raw("id", id.as_json());
    }
    object.string("method", method);
    if let Some(params) = params {
        object.raw("params", params);
    }
    object.end();
    out.freeze()
}

/// A whole response message with a result, a JSON object.
#[must_use]
pub fn response(id: &RequestId, result: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + id.as_json().len() + result.len());
    put_response_head(&mut out, id);
    out.put_slice(result);
    out.put_u8(b'}');
    out.freeze()
}

/// The beginning of a response message up to the bytes of its result; `}` ends it. It is for
/// streamed results.
#[must_use]
pub fn response_head(id: &RequestId) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + id.as_json().len());
    put_response_head(&mut out, id);
    out.freeze()
}

fn put_response_head(out: &mut BytesMut, id: &RequestId) {
    ObjectWriter::new(out)
        .raw("jsonrpc", b"\"2.0\"")
        .raw("id", id.as_json())
        .key("result");
}

/// A whole error response message. Without an id the member is left out, or null if `null_id` is
/// set (revisions before 2025-11-25).
#[must_use]
pub fn error_response(id: Option<&RequestId>, null_id: bool, error: &ErrorObject) -> Bytes {
    let mut out = BytesMut::with_capacity(128 + error.message.len());
    let mut object = ObjectWriter::new(&mut out);
    object.raw("jsonrpc", b"\"2.0\"");
    match id {
        Some(id) => object.raw("id", id.as_json()),
        None if null_id => object.raw("id", b"null"),
        None => &mut object,
    };
    object.with("error", |out| error.write(out)).end();
    out.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    // Proves R034.
    #[test]
    fn envelopes_echo_the_id_with_its_type() {
        for json in ["7", r#""7""#] {
            let id = RequestId::from_json(json.as_bytes()).unwrap();
            assert_eq!(
                response(&id, b"{}"),
                format!(r#"{{"jsonrpc":"2.0","id":{json},"result":{{}}}}"#)
            );
            let error = error_response(Some(&id), false, &ErrorObject::new(-32601, "no"));
            assert_eq!(
                error,
                format!(
                    r#"{{"jsonrpc":"2.0","id":{json},"error":{{"code":-32601,"message":"no"}}}}"#
                )
            );
        }
        let error = ErrorObject::new(-32700, "x");
        assert_eq!(
            error_response(None, false, &error),
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#
        );
        assert_eq!(
            error_response(None, true, &error),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#
        );
        assert_eq!(
            notification("notifications/x", Some(b"{}")),
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#
        );
        assert_eq!(
            request(&RequestId::from(1_u64), "ping", None),
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#
        );
    }
}
