//! Removal of hidden characters from the texts of servers.
//!
//! A tool's result is read by a model and often shown in a terminal. Characters that a reader does
//! not see, or that steer the terminal, are removed from the strings meant for readers; names,
//! addresses, data and all else pass as bytes. [`REMOVALS`] is the table of characters,
//! [`DocumentKind`] the one of strings.
//!
//! [`clean`] takes a whole text and [`Cleaner`] one in chunks; they do the same. Cleaning is total
//! (any bytes are taken), idempotent, leaves a text alone that has no such characters, and makes of
//! JSON always JSON. [`is_quiet`] finds out cheaply that a text has no such characters, without a
//! look at its structure.
//!
//! [`cut()`] bounds the size of a result at the cost of its text, and [`SecretPatterns`] find
//! secrets in the same strings. This crate does no IO and holds no clock.

mod bidi;
mod character_spelling;
mod cleaned_output;
pub(crate) mod cleaner;
mod credentials;
mod cut;
pub(crate) mod document;
mod document_walker;
mod escape;
mod filter;
mod flag;
pub mod fuzzing;
mod outlet;
mod patterns;
mod quiet_scan;
pub(crate) mod removals;
mod spelled_string;

pub use bidi::BIDI_WINDOW;
pub use cleaner::{Cleaner, HELD_MAX};
pub use credentials::mask_credentials;
pub use cut::{CutResult, TooLarge, cut};
pub use document::DocumentKind;
pub use document_walker::MAX_DEPTH;
pub use escape::MAX_SEQUENCE;
pub use patterns::{MaskedText, PatternError, SecretMatch, SecretPattern, SecretPatterns};
pub use quiet_scan::is_quiet;
pub use removals::{REMOVALS, RemovalCounts, RemovalKind, RemovalRule};

/// A text after the removal of hidden characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanedText {
    /// The text.
    pub bytes: Vec<u8>,
    /// The removals: at least one.
    pub removed: RemovalCounts,
}

/// Cleans a whole JSON text. Returns `None` if there is no removal: the text is to be used as it
/// is.
#[must_use]
pub fn clean(document: DocumentKind, bytes: &[u8]) -> Option<CleanedText> {
    if is_quiet(bytes) {
        return None;
    }
    let mut cleaner = Cleaner::new(document);
    let mut cleaned = Vec::with_capacity(bytes.len());
    cleaner.feed_slice(bytes, &mut cleaned);
    let removed = cleaner.finish_slice(&mut cleaned);
    (removed.total() > 0).then_some(CleanedText {
        bytes: cleaned,
        removed,
    })
}
