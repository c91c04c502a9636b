//! Responses of a mock server that have no behaviour.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

/// The body of every answer.
pub(super) type MockBody = UnsyncBoxBody<Bytes, io::Error>;

/// One JSON text.
pub(super) fn json_text(status: StatusCode, text: String) -> Response<MockBody> {
    let mut response = whole(status, Bytes::from(text));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// A JSON-RPC error for `id`.
pub(super) fn error(
    status: StatusCode,
    id: &Value,
    code: i64,
    message: &str,
) -> Response<MockBody> {
    json_text(
        status,
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
            .to_string(),
    )
}

/// A response of a status without a body.
pub(super) fn empty(status: StatusCode) -> Response<MockBody> {
    whole(status, Bytes::new())
}

fn whole(status: StatusCode, body: Bytes) -> Response<MockBody> {
    let never = |never: Infallible| -> io::Error { match never {} };
    let mut response = Response::new(Full::from(body).map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}
