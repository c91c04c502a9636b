//! The linear scan of every incoming JSON text, and cheap access to members of checked JSON.
//!
//! [`check`] bounds the input of all later code: valid UTF-8, strict JSON, depth, tokens, number
//! length, and no duplicate keys in the levels a gateway decides by. [`members`], [`elements`],
//! [`find`] and [`string`] then read single members without building a tree. They expect checked
//! input; on other input they stop early, but never panic, recurse or loop.

mod fast_scanner;
pub(crate) mod json_limits;
pub(crate) mod json_members;
mod key_set;
pub(crate) mod scan_error;
mod word_search;

use std::ops::Range;

use crate::json_lexer::{JsonLexer, LexerEvent};
use key_set::ObjectKeySet;

pub use json_limits::JsonLimits;
pub use json_members::{
    JsonElements, JsonMember, JsonMembers, MemberKey, elements, find, integer, is_object,
    is_string, members, string, trim,
};
pub use scan_error::{ScanError, ScanErrorKind};
pub use word_search::WordSearch;

/// The depth up to which objects must not have duplicate keys: the envelope, `params` or `result`,
/// and their `_meta` and `arguments`.
const UNIQUE_DEPTH: usize = 3;

/// Checks one JSON text in one pass, without recursion and, up to sixteen keys an object, without
/// allocation.
///
/// Lone surrogate escapes (`\ud800`) are legal in RFC 8259 and pass; [`string`] refuses to decode
/// them.
///
/// # Errors
/// The first fault, with its byte offset.
pub fn check(bytes: &[u8], limits: &JsonLimits) -> Result<(), ScanError> {
    scan_members(bytes, limits, UNIQUE_DEPTH, |_| {})
}

/// Checks like [`check`], and refuses duplicate keys at every depth. It is for values that a policy
/// or a validator reads as a tree: both that reader and the upstream must see the same value, and
/// the upstream may prefer either of two equal keys.
///
/// # Errors
/// The first fault, with its byte offset.
pub fn check_unique(bytes: &[u8], limits: &JsonLimits) -> Result<(), ScanError> {
    scan_members(bytes, limits, JsonLimits::DEPTH_CEILING as usize, |_| {})
}

/// Checks like [`check`] without duplicate keys: for a batch, because its items are checked one by
/// one later.
pub(crate) fn check_grammar(bytes: &[u8], limits: &JsonLimits) -> Result<(), ScanError> {
    scan_members(bytes, limits, 0, |_| {})
}

/// Checks like [`check`], and gives each member of the top-level object to `visit`; perhaps twice,
/// the same both times.
pub(crate) fn check_members<'a>(
    bytes: &'a [u8],
    limits: &JsonLimits,
    visit: impl FnMut(JsonMember<'a>),
) -> Result<(), ScanError> {
    scan_members(bytes, limits, UNIQUE_DEPTH, visit)
}

fn scan_members<'a>(
    bytes: &'a [u8],
    limits: &JsonLimits,
    unique: usize,
    mut visit: impl FnMut(JsonMember<'a>),
) -> Result<(), ScanError> {
    if fast_scanner::accepts(bytes, limits, unique, &mut visit) {
        return Ok(());
    }
    find_fault(bytes, limits, unique, visit)
}

/// Checks with the lexer, to find the first fault.
fn find_fault<'a>(
    bytes: &'a [u8],
    limits: &JsonLimits,
    unique: usize,
    mut visit: impl FnMut(JsonMember<'a>),
) -> Result<(), ScanError> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(ScanError {
            kind: ScanErrorKind::ByteOrderMark,
            offset: 0,
        });
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(ScanError {
            kind: ScanErrorKind::NotUtf8,
            offset: error.valid_up_to() as u64,
        });
    }
    let mut lexer = JsonLexer::new(*limits, u32::try_from(unique).unwrap_or(u32::MAX));
    let mut seen = OpenObjectKeys::default();
    let (mut pos, mut key_start, mut member) = (0, 0, None);
    loop {
        let (consumed, event) = lexer.advance(&bytes[pos..])?;
        pos += consumed;
        let Some(event) = event else { break };
        let depth = lexer.depth() as usize;
        match event {
            LexerEvent::Open => seen.open(depth),
            LexerEvent::KeyStart => key_start = pos,
            LexerEvent::KeyEnd => {
                let key = MemberKey::new(&bytes[key_start..pos - 1]);
                if !seen.insert(depth, key) {
                    return Err(ScanError {
                        kind: ScanErrorKind::DuplicateKey,
                        offset: key_start as u64,
                    });
                }
                if depth == 1 {
                    member = Some((key, pos));
                }
            }
            LexerEvent::ValueStart(_) if depth == 1 => member = member.map(|(key, _)| (key, pos)),
            // Elements of a top-level array have no key and are no members.
            LexerEvent::ValueEnd if depth == 1 => {
                if let Some((key, start)) = member.take() {
                    visit(JsonMember {
                        key,
                        value: Range { start, end: pos },
                    });
                }
            }
            LexerEvent::ValueStart(_) | LexerEvent::ValueEnd | LexerEvent::Closing => {}
        }
    }
    lexer.finish()
}

/// The keys met so far in each open object: the outer levels in place, deeper ones (only if asked
/// for) on the heap.
#[derive(Default)]
struct OpenObjectKeys<'a> {
    outer: [ObjectKeySet<'a>; UNIQUE_DEPTH],
    inner: Vec<ObjectKeySet<'a>>,
}

impl<'a> OpenObjectKeys<'a> {
    fn open(&mut self, depth: usize) {
        if let Some(set) = self.outer.get_mut(depth - 1) {
            set.clear();
        } else {
            self.inner.truncate(depth - UNIQUE_DEPTH - 1);
            self.inner.push(ObjectKeySet::default());
        }
    }

    fn insert(&mut self, depth: usize, key: MemberKey<'a>) -> bool {
        match self.outer.get_mut(depth - 1) {
            Some(set) => set.insert(key),
            None => self.inner[depth - UNIQUE_DEPTH - 1].insert(key),
        }
    }
}

#[cfg(test)]
mod tests;
