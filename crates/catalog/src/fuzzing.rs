//! Body of the fuzz target of cursors, as a plain function.
//!
//! A target in `fuzz/` calls one of these on generated input; `crates/gateway/tests/corpus.rs`
//! calls the same on the committed corpus and on mutations of it, so that CI runs them without a
//! fuzzer. Each panics when its property is broken. Not part of the API.
#![doc(hidden)]
#![allow(
    clippy::missing_panics_doc,
    reason = "panicking is what a fuzz target is for"
)]

use weir_core::Principal;
use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::names::EndpointId;
use weir_core::port::Random;
use weir_core::upstream::ListKind;
use weir_seal::{Sealer, SealerKey};

use crate::cursor::{Cursor, CursorScope};

#[derive(Debug)]
struct Sevens;

impl Random for Sevens {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

/// Any text as a cursor: it opens only if it is the one cursor that weir made. The first two bytes
/// also choose a byte of that cursor to change, and its new value.
pub fn cursor_open(data: &[u8]) {
    let sealer = Sealer::new(vec![SealerKey::new(1, &[3; 32])]);
    let principal = Principal::owner(None);
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
