//! The body of the fuzz target, as a plain function: see `weir_wire::fuzzing`. Not part of the API.
#![doc(hidden)]
#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is what a fuzz target is for"
)]

use bytes::{Bytes, BytesMut};
use weir_wire::{JsonLimits, scan};

use crate::cleaner::Cleaner;
use crate::document::DocumentKind;
use crate::removals::RemovalCounts;
use crate::{CleanedText, clean, cut};

/// Takes any bytes and checks that there is no panic and that the output is the same for every
/// division into chunks. JSON must stay JSON, with no removal left for a second pass.
pub fn clean_any(data: &[u8]) {
    let (first, data) = data
        .split_first()
        .map_or((0, data), |(first, rest)| (*first, rest));
    let documents = [
        DocumentKind::ToolResult,
        DocumentKind::PromptResult,
        DocumentKind::Definitions,
        DocumentKind::Definition,
        DocumentKind::Instructions,
        DocumentKind::Error,
        DocumentKind::Question,
        DocumentKind::Notification,
        DocumentKind::Task,
        DocumentKind::TaskState,
        DocumentKind::Arguments,
    ];
    let document = documents[usize::from(first) % documents.len()];
    let cleaned = clean(document, data);
    let (whole, removed) = match &cleaned {
        Some(CleanedText { bytes, removed }) => (bytes.as_slice(), *removed),
        None => (data, RemovalCounts::default()),
    };
    for step in [1, 2, 3, 7, 64] {
        let (in_chunks, counts) = streamed(document, data, step);
        assert_eq!(in_chunks, whole, "in chunks of {step}");
        assert_eq!(counts, removed, "in chunks of {step}");
    }
    let limits = JsonLimits {
        max_depth: 200,
        ..JsonLimits::upstream()
    };
    if scan::check(data, &limits).is_ok() {
        assert!(scan::check(whole, &limits).is_ok(), "broken by cleaning");
        assert!(clean(document, whole).is_none(), "something was left");
        let limit = data.len() / 4 * 3;
        if let Ok(Some(cut)) = cut(data, limit, |removed| format!("\"{removed}\"")) {
            assert!(
                scan::check(&cut.bytes, &limits).is_ok(),
                "broken by cutting"
            );
            assert!(cut.bytes.len() <= limit, "too long");
        }
    }
}

fn streamed(document: DocumentKind, data: &[u8], step: usize) -> (BytesMut, RemovalCounts) {
    let (mut cleaner, mut out) = (Cleaner::new(document), BytesMut::new());
    for chunk in data.chunks(step) {
        cleaner.feed(&Bytes::copy_from_slice(chunk), &mut out);
    }
    let counts = cleaner.finish(&mut out);
    (out, counts)
}
