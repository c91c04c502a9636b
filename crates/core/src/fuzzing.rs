//! Bodies of the fuzz targets, as plain functions.
//!
//! A target in `fuzz/` calls one of these on generated input; `tests/corpus.rs` calls the same on
//! the committed corpus and on mutations of it, so that CI runs them without a fuzzer. Each panics
//! when its property is broken. Not part of the API.
#![doc(hidden)]
#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is what a fuzz target is for"
)]

use crate::capability::CapabilityClass;
use crate::content_version::ContentVersion;
use crate::cursor::{Cursor, CursorScope};
use crate::fakes::Sevens;
use crate::list_kind::ListKind;
use crate::names::EndpointId;
use crate::principal::{Principal, VerifiedIdentity};
use crate::schema::compile::CompiledSchema;
use crate::schema::mismatch::SchemaVerdict;
use crate::schema::verdict;
use crate::seal::{Sealer, SealerKey};

/// Any text as a cursor: it opens only if it is the one cursor that weir made. The first two bytes
/// also choose a byte of that cursor to change, and its new value.
pub fn cursor_open(data: &[u8]) {
    let sealer = Sealer::new(vec![SealerKey::new(1, &[3; 32])]);
    let principal = Principal::mint(VerifiedIdentity::Anonymous);
    let endpoint = EndpointId::new("/mcp");
    let scope = CursorScope {
        principal: &principal,
        endpoint: &endpoint,
        audience: None,
        kind: ListKind::Tools,
    };
    let cursor = Cursor {
        version: ContentVersion([1; 16]),
        class: CapabilityClass::BASE,
        position: 1,
        list: 2,
    };
    let good = cursor.seal(&sealer, &Sevens, &scope);
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(
            Cursor::open(&sealer, &scope, text).is_ok(),
            text == good,
            "a text weir did not make opens"
        );
    }
    if let [at, to, ..] = data {
        let mut changed = good.clone().into_bytes();
        let at = usize::from(*at) % changed.len();
        changed[at] = *to;
        if let Ok(text) = String::from_utf8(changed) {
            assert_eq!(
                Cursor::open(&sealer, &scope, &text).is_ok(),
                text == good,
                "a changed cursor opens"
            );
        }
    }
}

/// A schema, a line break, a value: an accepted schema comes to a verdict in bounded time (the
/// fuzzer's time limit checks that), and a refusal has few, short lines.
pub fn schema_cost(data: &[u8]) {
    let (schema, value) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &b"{}"[..]),
    };
    let Ok(schema) = CompiledSchema::compile(schema) else {
        return;
    };
    if let SchemaVerdict::Fails(mismatches) = verdict(&schema, value) {
        assert!((1..=5).contains(&mismatches.len()), "{mismatches:?}");
        assert!(
            mismatches
                .iter()
                .all(|mismatch| mismatch.to_string().chars().count() < 300),
            "{mismatches:?}"
        );
    }
}
