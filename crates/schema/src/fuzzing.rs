//! Bodies of the fuzz targets, as plain functions.
//!
//! A target in `fuzz/` calls one of these on generated input; `crates/gateway/tests/corpus.rs`
//! calls the same on the committed corpus and on mutations of it, so that CI runs them without a
//! fuzzer. Each panics when its property is broken. Not part of the API.
#![doc(hidden)]
#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is what a fuzz target is for"
)]

use crate::compile::CompiledSchema;
use crate::mismatch::SchemaVerdict;
use crate::verdict;

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
