//! The bodies of the fuzz targets, as plain functions.
//!
//! A target in `fuzz/` calls one of these with the fuzzer's input. `crates/gateway/tests/corpus.rs`
//! calls the same on the committed corpus and on mutations of it, so that CI runs them without a
//! fuzzer. Each panics if its property is broken. Not part of the API.
#![doc(hidden)]
#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is what a fuzz target is for"
)]

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::header;
use crate::message::{IncomingMessage, Message};
use crate::params::Params;
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::splice::object_edits::{MetaEdits, ObjectEdits};
use crate::splice::rewriter::ObjectRewriter;
use crate::splitter::{ReplySplitter, SplitCaps, SplitMessage};
use crate::sse::decoder::{SseCaps, SseDecoder, SseItem};
use crate::sse::encoder::{StreamEncoder, write_event};
use crate::sse::event_decoder::{DecodedEvent, EventDecoder};

const SMALL: JsonLimits = JsonLimits {
    max_depth: 32,
    max_tokens: 1000,
    max_number_len: 32,
    max_batch: 8,
    null_params: false,
    ignore_case_variants: false,
};

/// Checks any body: no panic; an accepted body is JSON within the limits, and every reader reads
/// the same values.
pub fn envelope(data: &[u8]) {
    let raw = Bytes::copy_from_slice(data);
    let checked = scan::check(data, &SMALL);
    if let Ok(incoming) = IncomingMessage::parse(raw.clone(), &SMALL) {
        // A batch may hold an item that is refused later.
        assert!(
            checked.is_ok() || matches!(incoming, IncomingMessage::Batch(_)),
            "parsed, but the scan refuses it"
        );
        let tree: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
        match incoming {
            IncomingMessage::Batch(items) => {
                assert!(!items.is_empty() && items.len() <= SMALL.max_batch)
            }
            IncomingMessage::One(message) => same_message(&message, &tree),
        }
    }
    split(&raw);
    rewrite(&raw);
}

fn same_message(message: &Message, tree: &serde_json::Value) {
    // A lone surrogate passes the scan but fails as a tree, so there is no value to compare.
    if tree.is_null() {
        return;
    }
    let (method, params) = match message {
        Message::Request(request) => (Some(request.method.as_str()), request.params.as_ref()),
        Message::Notification(note) => (Some(note.method.as_str()), note.params.as_ref()),
        Message::Response(_) => (None, None),
    };
    assert_eq!(method, tree["method"].as_str());
    let Ok(params) = Params::parse(params) else {
        return;
    };
    if let Ok(Some(name)) = params.name() {
        assert_eq!(
            Some(&*name),
            tree["params"]["name"].as_str(),
            "the policy's view differs from the peer's"
        );
    }
}

/// Checks that a splitter's output does not depend on the chunks.
fn split(raw: &Bytes) {
    let caps = SplitCaps {
        max_held: 4096,
        max_total: 1 << 20,
        limits: SMALL,
    };
    let run = |step: usize| {
        let (mut splitter, mut out) = (ReplySplitter::new(caps), Vec::new());
        for range in chunks(raw.len(), step) {
            splitter.feed(&raw.slice(range), &mut out).ok()?;
        }
        let mut text = out.concat();
        match splitter.finish().ok()? {
            SplitMessage::Whole(bytes) => text.extend_from_slice(&bytes),
            SplitMessage::Response(end) => {
                text.extend_from_slice(&end.rest);
                let given = serde_json::from_slice::<serde::de::IgnoredAny>(&text);
                assert!(given.is_ok(), "what was given of a result is none");
                text.extend_from_slice(
                    format!("|{:?}{:?}", end.response.id, end.result_type).as_bytes(),
                );
            }
        }
        Some(text)
    };
    let whole = run(raw.len().max(1));
    assert_eq!(whole, run(1));
    assert_eq!(whole, run(7));
}

/// Checks that a rewriter's output does not depend on the chunks, and that JSON stays JSON.
fn rewrite(raw: &Bytes) {
    let edits = ObjectEdits::new()
        .remove("method")
        .set("id", "7")
        .ensure("resultType", "\"complete\"")
        .observe("isError")
        .meta(MetaEdits::new().drop_owned().add("dev.weir/x", "1"));
    let run = |step: usize| {
        let (mut rewriter, mut out) = (
            ObjectRewriter::with_limits(edits.clone(), SMALL),
            BytesMut::new(),
        );
        for range in chunks(raw.len(), step) {
            rewriter.feed(&raw.slice(range), &mut out).ok()?;
        }
        rewriter.finish().ok()?;
        Some(out)
    };
    let whole = run(raw.len().max(1));
    assert_eq!(whole, run(1));
    assert_eq!(whole, run(5));
    if let Some(out) = whole
        && scan::check(raw, &SMALL).is_ok()
    {
        assert!(
            serde_json::from_slice::<serde::de::IgnoredAny>(&out).is_ok(),
            "broken by editing"
        );
    }
}

/// Checks header text: a decoded value encodes back to the same text, an encoded value decodes to
/// the original text, and no other value is equal.
pub fn mcp_headers(data: &[u8]) {
    if let Ok(text) = header::decode(data) {
        assert_eq!(
            header::decode(header::encode(&text).as_bytes()).as_deref(),
            Ok(&*text)
        );
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let value = header::encode(text);
        assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        if value.len() <= header::MAX_LEN {
            assert_eq!(header::decode(value.as_bytes()).as_deref(), Ok(text));
            let other = header::encode(&format!("{text}x")).into_owned();
            assert_ne!(header::decode(other.as_bytes()).as_deref(), Ok(text));
        }
    }
}

/// Checks that any chunking of an SSE stream gives the same events.
pub fn sse_decode(data: &[u8]) {
    let whole = decode_in(data, data.len().max(1));
    assert_eq!(whole, decode_in(data, 1));
    assert_eq!(whole, decode_in(data, 3));
}

/// The data that came before an item, and the item; no item at the end of the stream.
type DataAndItem = (Vec<u8>, Option<SseItem>);

/// Returns the items with the data of an event joined, and true if the stream was refused.
fn decode_in(data: &[u8], step: usize) -> (Vec<DataAndItem>, bool) {
    let raw = Bytes::copy_from_slice(data);
    let mut decoder = SseDecoder::new(SseCaps {
        max_event: 64,
        max_field: 16,
    });
    let (mut items, mut text) = (Vec::new(), Vec::new());
    for range in chunks(data.len(), step) {
        let mut input = raw.slice(range);
        loop {
            match decoder.feed(&mut input) {
                Ok(None) => break,
                Ok(Some(SseItem::Data(chunk))) => text.extend_from_slice(&chunk),
                Ok(Some(item)) => items.push((std::mem::take(&mut text), Some(item))),
                // The amount of a refused event that was passed on depends on the chunks.
                Err(_) => return (items, true),
            }
            assert!(text.len() <= 64, "more data than the cap");
        }
    }
    items.push((text, None));
    (items, false)
}

/// Checks that one event in is one event out for any data and id, and that the two encoders agree.
pub fn sse_reencode(data: &[u8]) {
    let id = String::from_utf8_lossy(&data[..data.len().min(8)]).into_owned();
    let mut whole = BytesMut::new();
    write_event(&mut whole, Some(&id), None, data);
    let mut encoder = StreamEncoder::default();
    let mut pieces = vec![encoder.begin(Some(&id))];
    for range in chunks(data.len(), 3) {
        encoder.data(Bytes::copy_from_slice(&data[range]), &mut pieces);
    }
    pieces.push(encoder.end());
    assert_eq!(pieces.concat(), whole);

    let mut decoder = EventDecoder::new(SseCaps::default());
    let mut input = whole.freeze();
    let id = id.replace(['\n', '\r', '\0'], "");
    let text = Bytes::from(normalized(data));
    assert_eq!(
        decoder.feed(&mut input),
        Ok(Some(DecodedEvent::Message {
            event: None,
            id: Some(id),
            data: text
        }))
    );
    assert_eq!(decoder.feed(&mut input), Ok(None));
    assert!(decoder.is_between_events());
}

/// Returns the data with every kind of line break as a newline: the form that an event can carry.
fn normalized(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut bytes = data.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'\r' {
            let _rest_of_break = bytes.next_if_eq(&b'\n');
        }
        out.push(if byte == b'\r' { b'\n' } else { byte });
    }
    out
}

fn chunks(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len)
        .step_by(step)
        .map(move |start| start..len.min(start + step))
}
