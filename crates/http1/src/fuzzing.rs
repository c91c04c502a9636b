//! The body of the fuzz target `http1_response`, as a plain function.
//!
//! The target in `fuzz/` calls it with the fuzzer's input; a test calls it on the committed corpus
//! and on mutations of it. It panics if its property is broken. Not part of the API.
#![doc(hidden)]
#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is what a fuzz target is for"
)]

use bytes::BytesMut;
use http::{HeaderMap, StatusCode};

use crate::{MalformedResponse, ResponseHead, read_response_head};

/// The longest input. It is less than the bound on a head, which is found at another byte in a head
/// that comes whole.
const MAX_INPUT_BYTES: usize = 32 << 10;

/// A response as far as its bytes reach.
#[derive(Debug, PartialEq)]
struct ReadResponse {
    head: Option<(StatusCode, HeaderMap, bool)>,
    body: Vec<u8>,
    is_over: bool,
    /// The bytes after the body.
    rest: usize,
}

/// Checks any response: no panic, and the same result wherever the network cuts its bytes. The
/// first byte of the input gives the distance of the cuts.
pub fn http1_response(data: &[u8]) {
    let Some((cut, response)) = data.split_first() else {
        return;
    };
    if response.len() > MAX_INPUT_BYTES {
        return;
    }
    let whole = read(response, response.len().max(1));
    for pieces in [1, usize::from(*cut).max(1)] {
        let cut = read(response, pieces);
        // A bound on a line is seen in bytes that have come, or at its end: the reasons may differ.
        assert_eq!(whole.is_ok(), cut.is_ok(), "cut every {pieces} bytes");
        if let (Ok(whole), Ok(cut)) = (&whole, &cut) {
            assert_eq!(whole, cut, "cut every {pieces} bytes");
        }
    }
}

/// Reads a response of which so many bytes come at once.
fn read(response: &[u8], pieces: usize) -> Result<ReadResponse, MalformedResponse> {
    let mut unread = BytesMut::new();
    let mut interim = 0;
    let mut head: Option<ResponseHead> = None;
    let mut body = Vec::new();
    for piece in response.chunks(pieces) {
        unread.extend_from_slice(piece);
        if head.is_none() {
            head = read_response_head(&mut unread, &mut interim)?;
        }
        let Some(ResponseHead { framing, .. }) = &mut head else {
            continue;
        };
        while !framing.is_over()
            && let Some(data) = framing.next(&mut unread)?
        {
            assert!(!data.is_empty(), "a part of the body is empty");
            body.extend_from_slice(&data);
        }
    }
    Ok(ReadResponse {
        is_over: head.as_ref().is_some_and(|head| head.framing.is_over()),
        rest: unread.len(),
        head: head.map(|head| (head.status, head.headers, head.persists)),
        body,
    })
}
