//! Writes the head of a request and reads the head of a response (RFC 9112, sections 2 to 6).

use std::io::Write as _;
use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use httparse::{ParserConfig, Status};

use crate::MalformedResponse;
use crate::chunk_decoder::ChunkDecoder;
use crate::outgoing_request::OutgoingRequest;
use crate::response_framing::ResponseFraming;

/// The limits of a response's head, in bytes and in fields.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_FIELDS: usize = 100;
/// The usual size of a request's head, tokens included.
const USUAL_HEAD_BYTES: usize = 1024;

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// Its final status, not an interim one.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
    /// The extent of its body.
    pub framing: ResponseFraming,
    /// True if the connection can carry another request after the body.
    pub persists: bool,
}

/// Writes the head for `ask`.
pub fn write_request_head(ask: OutgoingRequest<'_>) -> Vec<u8> {
    let uri = ask.to.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut out = Vec::with_capacity(USUAL_HEAD_BYTES);
    out.extend_from_slice(ask.method.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    ask.write_fields(&mut out);
    // Without a length a body would be read as the next request. A POST without a body has an
    // explicit zero (RFC 9110, 8.6).
    if !ask.body.is_empty() || ask.method == Method::POST {
        // Writing into memory cannot fail.
        let _written = write!(out, "content-length: {}\r\n", ask.body.len());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Takes the head of the response off `unread`; absent until it is complete. Interim responses
/// (1xx) and empty lines before a head are skipped, and their bytes are added to `interim`: a
/// server may send as many of them as fit into one head.
///
/// # Errors
/// The bytes are not the head of a response, or are too long.
pub fn read_response_head(
    unread: &mut BytesMut,
    interim: &mut usize,
) -> Result<Option<ResponseHead>, MalformedResponse> {
    loop {
        add_skipped(interim, skip_empty_lines(unread))?;
        let Some(end) = end_of_head(unread) else {
            return if unread.len() > MAX_HEAD_BYTES {
                Err(MalformedResponse("its head is too long"))
            } else {
                Ok(None)
            };
        };
        let bytes = unread.split_to(end).freeze();
        if let Some(head) = parse_head(&bytes)? {
            return Ok(Some(head));
        }
        add_skipped(interim, end)?;
    }
}

/// Adds skipped bytes to `interim`, up to the limit of a head.
fn add_skipped(interim: &mut usize, skipped: usize) -> Result<(), MalformedResponse> {
    *interim += skipped;
    if *interim > MAX_HEAD_BYTES {
        return Err(MalformedResponse(
            "too many interim answers or empty lines come before it",
        ));
    }
    Ok(())
}

/// Takes the empty lines before a head off `unread`, and returns their length: hyper and other
/// clients skip them, as servers do before a request (RFC 9112, 2.2).
fn skip_empty_lines(unread: &mut BytesMut) -> usize {
    let before = unread.len();
    loop {
        match &unread[..] {
            [b'\n', ..] => unread.advance(1),
            [b'\r', b'\n', ..] => unread.advance(2),
            _ => return before - unread.len(),
        }
    }
}

/// Finds the end of the empty line that ends a head.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\r', b'\n', ..] => Some(at + 3),
        [b'\n', ..] => Some(at + 2),
        _ => None,
    })
}

/// Parses a complete head; absent for an interim response.
fn parse_head(bytes: &Bytes) -> Result<Option<ResponseHead>, MalformedResponse> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let read =
        ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields);
    match read {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) => return Err(MalformedResponse("its head is not whole")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(MalformedResponse("its head has too many fields"));
        }
        Err(_) => return Err(MalformedResponse("its head cannot be read")),
    }
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(MalformedResponse("its status is none"))?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(MalformedResponse("it switches to another protocol"));
    }
    if status.is_informational() {
        return Ok(None);
    }
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| MalformedResponse("a field's name is none"))?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        headers.append(
            name,
            value.map_err(|_| MalformedResponse("a field's value is none"))?,
        );
    }
    let is_http_1_1 = parsed.version == Some(1);
    let (framing, is_clear) = framing(status, is_http_1_1, &headers)?;
    let persists = is_clear && is_http_1_1 && !closes(&headers);
    Ok(Some(ResponseHead {
        status,
        headers,
        framing,
        persists,
    }))
}

/// Returns the length of the body, and true if that is beyond doubt (RFC 9112, 6.3). weir sends no
/// HEAD or CONNECT.
fn framing(
    status: StatusCode,
    is_http_1_1: bool,
    headers: &HeaderMap,
) -> Result<(ResponseFraming, bool), MalformedResponse> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter().peekable();
    let is_coded = codings.peek().is_some();
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok((ResponseFraming::Length(0), !is_coded));
    }
    // HTTP/1.0 has no transfer codings: a proxy on the way may have read the body differently
    // (RFC 9112, 6.1).
    if is_coded && !is_http_1_1 {
        return Err(MalformedResponse(
            "it has a transfer coding, which HTTP/1.0 does not have",
        ));
    }
    if is_coded {
        let is_chunked = codings.next_back().is_some_and(|last| {
            let last = last
                .as_bytes()
                .rsplit(|byte| *byte == b',')
                .next()
                .unwrap_or_default();
            last.trim_ascii().eq_ignore_ascii_case(b"chunked")
        });
        if !is_chunked {
            return Ok((ResponseFraming::Close, false));
        }
        // A length beside a transfer coding counts for nothing, and may be an attempt at request
        // smuggling: the connection is not used again.
        let is_clear = !headers.contains_key(header::CONTENT_LENGTH);
        return Ok((ResponseFraming::Chunked(ChunkDecoder::default()), is_clear));
    }
    Ok(match length(headers)? {
        Some(length) => (ResponseFraming::Length(length), true),
        None => (ResponseFraming::Close, false),
    })
}

/// Returns the one length that all fields of the name agree on.
fn length(headers: &HeaderMap) -> Result<Option<u64>, MalformedResponse> {
    let mut found = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for one in value.as_bytes().split(|byte| *byte == b',') {
            let one = one.trim_ascii();
            let is_number = !one.is_empty() && one.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(one)
                .ok()
                .filter(|_| is_number)
                .and_then(|digits| digits.parse().ok());
            let number: u64 = number.ok_or(MalformedResponse("its length is no number"))?;
            if found.replace(number).is_some_and(|other| other != number) {
                return Err(MalformedResponse("it has two lengths"));
            }
        }
    }
    Ok(found)
}

/// True if the server ends the connection after this response.
fn closes(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|one| one.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_body_that_ends_with_its_connection_leaves_none_to_use_again() {
        for (fields, persists) in [
            ("transfer-encoding: chunked\r\n", true),
            ("transfer-encoding: gzip, chunked\r\n", true),
            ("transfer-encoding: chunked, gzip\r\n", false),
            ("transfer-encoding: identity\r\n", false),
            ("", false),
            ("content-length: 2\r\n", true),
        ] {
            let mut unread = BytesMut::from(&*format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
            let head = read_response_head(&mut unread, &mut 0).unwrap().unwrap();
            assert_eq!(head.persists, persists, "{fields}");
        }
    }
}
