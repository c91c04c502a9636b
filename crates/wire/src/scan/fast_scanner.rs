//! The fast path of the scan, for a text without faults. The whole text is in memory, so the scan
//! needs no state that survives a byte.
//!
//! It can only accept. The lexer judges every text that is not accepted here, and finds the fault
//! and its position; so the two have to agree on accepted texts alone.

use crate::plain_runs;
use crate::scan::json_limits::JsonLimits;
use crate::scan::json_members::{JsonMember, MemberKey};

/// The depth up to which brackets are followed; deeper texts go to the lexer.
const MAX_FAST_DEPTH: usize = 64;
/// The most keys that are kept for all open objects together, to find duplicates.
const MAX_FAST_KEYS: usize = 32;
/// The mark of an array in the stack of open brackets, in place of the index of an object's first
/// key.
const ARRAY_MARK: u8 = u8::MAX;

/// Reports if the text is one JSON value within `limits` without duplicate keys in the outer
/// `unique` levels. Gives each member of a top-level object to `visit`, even if the result is then
/// false.
pub(super) fn accepts<'a>(
    bytes: &'a [u8],
    limits: &JsonLimits,
    unique: usize,
    visit: &mut impl FnMut(JsonMember<'a>),
) -> bool {
    let quick = FastScanner {
        bytes,
        at: 0,
        open: [0; MAX_FAST_DEPTH],
        depth: 0,
        keys: [&[]; MAX_FAST_KEYS],
        held: 0,
        tokens: 0,
        limits,
        unique,
    };
    is_utf8(bytes) && quick.walk(visit).is_some()
}

fn is_utf8(bytes: &[u8]) -> bool {
    // Most texts are ASCII, and without an early exit the compiler vectorises this.
    bytes.iter().fold(0, |seen, &byte| seen | byte).is_ascii() || std::str::from_utf8(bytes).is_ok()
}

struct FastScanner<'a, 'l> {
    bytes: &'a [u8],
    at: usize,
    /// The index of the first key of each open object, or [`ARRAY_MARK`].
    open: [u8; MAX_FAST_DEPTH],
    depth: usize,
    keys: [&'a [u8]; MAX_FAST_KEYS],
    held: usize,
    tokens: u32,
    limits: &'l JsonLimits,
    unique: usize,
}

impl<'a> FastScanner<'a, '_> {
    fn walk(mut self, visit: &mut impl FnMut(JsonMember<'a>)) -> Option<()> {
        let (mut member, mut start) = (MemberKey::default(), 0);
        self.blank();
        loop {
            self.token()?;
            if self.depth == 1 {
                start = self.at;
            }
            let first = *self.bytes.get(self.at)?;
            match first {
                b'{' | b'[' => {
                    self.enter(first)?;
                    if *self.bytes.get(self.at)? == first + 2 {
                        self.leave();
                    } else {
                        if first == b'{' {
                            let key = self.key()?;
                            member = if self.depth == 1 { key } else { member };
                        }
                        continue;
                    }
                }
                _ => self.scalar(first)?,
            }
            // A value has ended.
            loop {
                if self.depth == 0 {
                    self.blank();
                    return (self.at == self.bytes.len()).then_some(());
                }
                let in_object = self.open[self.depth - 1] != ARRAY_MARK;
                if self.depth == 1 && in_object {
                    visit(JsonMember {
                        key: member,
                        value: start..self.at,
                    });
                }
                self.blank();
                match (*self.bytes.get(self.at)?, in_object) {
                    (b',', _) => {
                        self.at += 1;
                        self.blank();
                        if in_object {
                            let key = self.key()?;
                            member = if self.depth == 1 { key } else { member };
                        }
                        break;
                    }
                    (b'}', true) | (b']', false) => self.leave(),
                    _ => return None,
                }
            }
        }
    }

    fn enter(&mut self, bracket: u8) -> Option<()> {
        if self.depth >= MAX_FAST_DEPTH || self.depth >= self.limits.max_depth as usize {
            return None;
        }
        self.open[self.depth] = if bracket == b'{' {
            u8::try_from(self.held).ok()?
        } else {
            ARRAY_MARK
        };
        self.depth += 1;
        self.at += 1;
        self.blank();
        Some(())
    }

    fn leave(&mut self) {
        self.at += 1;
        self.depth -= 1;
        let from = self.open[self.depth];
        if from != ARRAY_MARK {
            self.held = usize::from(from);
        }
    }

    /// Reads a key, its colon, and the blanks up to the value.
    fn key(&mut self) -> Option<MemberKey<'a>> {
        self.token()?;
        if *self.bytes.get(self.at)? != b'"' {
            return None;
        }
        let start = self.at + 1;
        let escaped = self.text()?;
        let raw = &self.bytes[start..self.at - 1];
        if self.depth <= self.unique {
            // Two spellings of one key go to the lexer, and so do very many keys.
            let from = usize::from(self.open[self.depth - 1]);
            if escaped || self.held == MAX_FAST_KEYS || self.keys[from..self.held].contains(&raw) {
                return None;
            }
            self.keys[self.held] = raw;
            self.held += 1;
        }
        self.blank();
        if *self.bytes.get(self.at)? != b':' {
            return None;
        }
        self.at += 1;
        self.blank();
        Some(MemberKey::with_escapes(raw, escaped))
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' => self.text().map(drop),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    /// Reads a string from its opening quote to its closing one; true if it has escapes.
    fn text(&mut self) -> Option<bool> {
        let mut escaped = false;
        self.at += 1;
        loop {
            self.at += plain_runs::plain_len(&self.bytes[self.at..]);
            match *self.bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(escaped);
                }
                b'\\' => {
                    escaped = true;
                    self.at += self.escape()?;
                }
                _ => return None,
            }
        }
    }

    /// The length of the escape at this position.
    fn escape(&self) -> Option<usize> {
        match *self.bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
            b'u' => self
                .bytes
                .get(self.at + 2..self.at + 6)?
                .iter()
                .all(u8::is_ascii_hexdigit)
                .then_some(6),
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let good = self.bytes[self.at..].starts_with(word);
        self.at += word.len();
        good.then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        self.at += usize::from(self.bytes[self.at] == b'-');
        if *self.bytes.get(self.at)? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.bytes.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
        }
        (self.at - start <= self.limits.max_number_len as usize).then_some(())
    }

    /// Reads at least one digit.
    fn digits(&mut self) -> Option<()> {
        let rest = &self.bytes[self.at..];
        let count = rest
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len());
        self.at += count;
        (count > 0).then_some(())
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn token(&mut self) -> Option<()> {
        self.tokens += 1;
        (self.tokens <= self.limits.max_tokens).then_some(())
    }
}
