//! Cleaning held against tables, a slow reference and a corpus of poisoned texts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod kinds;
mod poisoned;
mod properties;
mod reference;
mod streams;

use bytes::{Bytes, BytesMut};
use weir_clean::{Cleaner, DocumentKind, RemovalCounts, clean};

/// The text and the removals from it.
fn cleaned(document: DocumentKind, bytes: &[u8]) -> (Vec<u8>, RemovalCounts) {
    clean(document, bytes).map_or((bytes.to_vec(), RemovalCounts::default()), |cleaned| {
        (cleaned.bytes, cleaned.removed)
    })
}

/// The same by a stream in chunks of these sizes, in turn.
fn streamed(document: DocumentKind, mut bytes: &[u8], sizes: &[usize]) -> (Vec<u8>, RemovalCounts) {
    let (mut cleaner, mut out) = (Cleaner::new(document), BytesMut::new());
    for size in sizes.iter().cycle() {
        let (chunk, rest) = bytes.split_at((*size).clamp(1, bytes.len().max(1)).min(bytes.len()));
        cleaner.feed(&Bytes::copy_from_slice(chunk), &mut out);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    let counts = cleaner.finish(&mut out);
    (out.to_vec(), counts)
}

/// A tool's result with one text block; the text as it is spelled.
fn result(spelled: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{spelled}"}}]}}"#)
}

/// A character as a JSON escape, or two of a surrogate pair.
fn escaped(character: char, upper: bool) -> String {
    let units = character.encode_utf16(&mut [0; 2]).to_vec();
    let hex = |unit: &u16| {
        if upper {
            format!("\\u{unit:04X}")
        } else {
            format!("\\u{unit:04x}")
        }
    };
    units.iter().map(hex).collect()
}

/// A character as it is in JSON, escaped if it must be.
fn raw(character: char) -> String {
    match character {
        '"' | '\\' => format!("\\{character}"),
        '\u{8}' => "\\b".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\0'..='\u{1f}' => escaped(character, false),
        _ => character.to_string(),
    }
}
