//! How bytes get through the rewriter: held until decided, or on their way out.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::Sink;
use crate::scan::Key;

/// A key longer than this is nobody's we know: it passes unread. White space between members is cut
/// down to this much.
const HELD_MAX: usize = 1024;
/// White space, comma and key in front of a value, until it is decided what becomes of them.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    /// Where the text of the key begins.
    key_at: Option<usize>,
    /// White space has grown beyond the cap and is dropped.
    squeezing: bool,
}

impl Held {
    /// Forgets everything: a member ended, or goes.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            ..Self::default()
        };
        self.bytes.clear();
    }

    /// How many bytes are held.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The opening quote of a key was the last byte.
    pub(crate) fn key_starts(&mut self) {
        self.key_at = Some(self.bytes.len());
    }

    /// The complete key, its closing quote being the last byte held. `None` if it was too long and
    /// is gone already.
    pub(crate) fn key(&self) -> Option<Key<'_>> {
        Some(Key::new(&self.bytes[self.key_at?..self.bytes.len() - 1]))
    }

    /// Breaks when the key has grown too long to hold.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.bytes.extend_from_slice(bytes);
        if let Some(at) = self.key_at {
            return if self.bytes.len() - at > HELD_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        self.squeezing |= self.bytes.len() > HELD_MAX;
        if self.squeezing {
            self.bytes.retain(|byte| matches!(byte, b',' | b'"'));
        }
        ControlFlow::Continue(())
    }

    /// Gives the bytes up, without their comma where no member precedes.
    pub(crate) fn take(&mut self, occupied: bool) -> &[u8] {
        let gap = self.key_at.take().map_or(self.bytes.len(), |at| at - 1);
        if !occupied && let Some(comma) = self.bytes[..gap].iter().position(|&byte| byte == b',') {
            self.bytes.remove(comma);
        }
        &self.bytes
    }
}

/// The way out: joins neighbouring runs of a chunk into one piece.
pub(super) struct Port<'a, S> {
    chunk: &'a Bytes,
    passed: Range<usize>,
    out: &'a mut S,
}

impl<'a, S: Sink> Port<'a, S> {
    /// A way out for one chunk. Call [`Port::flush`] at its end.
    pub(super) fn new(chunk: &'a Bytes, out: &'a mut S) -> Self {
        Self {
            chunk,
            passed: 0..0,
            out,
        }
    }

    /// The chunk.
    pub(super) fn chunk(&self) -> &'a Bytes {
        self.chunk
    }

    /// `range` of the chunk goes on unchanged.
    pub(super) fn pass(&mut self, range: Range<usize>) {
        if self.passed.end != range.start {
            self.flush();
            self.passed.start = range.start;
        }
        self.passed.end = range.end;
    }

    /// New bytes go on.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.flush();
            self.out.put(bytes);
        }
    }

    /// Hands over what has passed so far.
    pub(super) fn flush(&mut self) {
        if !self.passed.is_empty() {
            self.out.pass(self.chunk, self.passed.clone());
        }
        self.passed.start = self.passed.end;
    }
}
