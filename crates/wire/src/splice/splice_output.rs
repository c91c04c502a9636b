//! The buffers of the rewriter: bytes held until a decision, and bytes to emit.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use crate::scan::json_members::MemberKey;
use crate::splice::ByteSink;

/// The longest key that is held: a longer one is not a known name, and passes unread. White space
/// between members is cut to this length.
const HELD_MAX: usize = 1024;
/// The white space, comma and key in front of a value, until its action is decided.
#[derive(Debug, Default)]
pub(crate) struct HeldMember {
    bytes: Vec<u8>,
    /// The offset of the key's text.
    key_at: Option<usize>,
    /// True if the white space has grown beyond the limit and is dropped.
    squeezing: bool,
}

impl HeldMember {
    /// Clears the buffer: a member ended, or is removed.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            ..Self::default()
        };
        self.bytes.clear();
    }

    /// The count of held bytes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Notes that the opening quote of a key was the last byte.
    pub(crate) fn key_starts(&mut self) {
        self.key_at = Some(self.bytes.len());
    }

    /// Returns the complete key, its closing quote being the last held byte. Absent if it was too
    /// long and was emitted already.
    pub(crate) fn key(&self) -> Option<MemberKey<'_>> {
        Some(MemberKey::new(
            &self.bytes[self.key_at?..self.bytes.len() - 1],
        ))
    }

    /// Appends bytes; breaks if the key has grown too long to hold.
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

    /// Returns the held bytes, without their comma if no member precedes.
    pub(crate) fn take(&mut self, occupied: bool) -> &[u8] {
        let gap = self.key_at.take().map_or(self.bytes.len(), |at| at - 1);
        if !occupied && let Some(comma) = self.bytes[..gap].iter().position(|&byte| byte == b',') {
            self.bytes.remove(comma);
        }
        &self.bytes
    }
}

/// The output of one chunk: joins neighbouring ranges into one piece.
pub(super) struct SpliceOutput<'a, S> {
    chunk: &'a Bytes,
    passed: Range<usize>,
    out: &'a mut S,
}

impl<'a, S: ByteSink> SpliceOutput<'a, S> {
    /// An output for one chunk. Call [`SpliceOutput::flush`] at its end.
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

    /// Passes `range` of the chunk on unchanged.
    pub(super) fn pass(&mut self, range: Range<usize>) {
        if self.passed.end != range.start {
            self.flush();
            self.passed.start = range.start;
        }
        self.passed.end = range.end;
    }

    /// Emits new bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.flush();
            self.out.put(bytes);
        }
    }

    /// Emits the range that has passed so far.
    pub(super) fn flush(&mut self) {
        if !self.passed.is_empty() {
            self.out.pass(self.chunk, self.passed.clone());
        }
        self.passed.start = self.passed.end;
    }
}
