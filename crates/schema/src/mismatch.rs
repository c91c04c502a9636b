//! Reports mismatches of a value in a form that a model can act on, without repeating the value.

use std::fmt;

use jsonschema::ValidationError;

/// Mismatches reported at once.
const MAX_MISMATCHES: usize = 5;
/// Characters of a pointer, and of the expectation there: both may contain text of a client or an
/// upstream.
const POINTER: usize = 64;
const EXPECTED: usize = 160;

/// One place of a value that does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// A JSON pointer into the value; empty for the whole of it.
    pub pointer: String,
    /// The expectation there.
    pub expected: String,
}

impl Mismatch {
    /// About the whole value.
    #[must_use]
    pub fn whole(expected: &str) -> Self {
        Self::at("", expected)
    }

    /// About the value that a JSON pointer leads to.
    pub(super) fn at(pointer: &str, expected: &str) -> Self {
        Self {
            pointer: cut(pointer, POINTER),
            expected: cut(expected, EXPECTED),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() {
            "(the whole value)"
        } else {
            &self.pointer
        };
        write!(f, "{pointer}: {}", self.expected)
    }
}

/// The result of validating a value.
#[derive(Debug, PartialEq, Eq)]
pub enum SchemaVerdict {
    /// It matches.
    Fits,
    /// It does not; at most five mismatches.
    Fails(Vec<Mismatch>),
    /// No validator can read it: a number that no double holds, or half a surrogate pair. The first
    /// such place.
    Unreadable(Mismatch),
    /// The check would cost more than it may.
    Unknown,
}

/// The first few mismatches. The values themselves are masked.
pub(super) fn collect<'a>(errors: impl Iterator<Item = ValidationError<'a>>) -> Vec<Mismatch> {
    let mismatch = |error: ValidationError<'_>| Mismatch {
        pointer: cut(error.instance_path().as_str(), POINTER),
        expected: cut(&error.masked().to_string(), EXPECTED),
    };
    errors.take(MAX_MISMATCHES).map(mismatch).collect()
}

/// At most so many characters of a text.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
