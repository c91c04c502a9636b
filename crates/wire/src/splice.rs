//! Editing one JSON object while its bytes pass.
//!
//! A gateway changes a few members of a message and must leave the rest alone, byte for byte, at
//! any size. [`ObjectEdits`] lists the changes at the top level and inside `_meta`.
//! [`ObjectRewriter`] makes them in bounded memory over chunks of any size; [`ObjectEdits::apply`]
//! makes them in a whole object at once. Deeper levels are not touched, and values are replaced,
//! never interpreted. [`BlockReplacer`] and [`StructuredAsText`] look into content blocks, and
//! [`StringEditor`] changes single strings at any depth.

mod block_replacer;
mod key_buffer;
pub(crate) mod object_edits;
pub(crate) mod rewriter;
pub(crate) mod splice_output;
mod string_editor;
mod structured_as_text;
mod whole_object;

use std::ops::Range;

use bytes::{Bytes, BytesMut};

pub use block_replacer::{BlockLocation, BlockReplacer, ReplacedBlock};
pub use object_edits::{MetaEdits, ObjectEdits};
pub use rewriter::{ObjectRewriter, ObservedMembers, SpliceError};
pub use string_editor::{PathStep, StringEdit, StringEditor};
pub use structured_as_text::{CarriedValues, LeftOutTexts, StructuredAsText};

/// The output of rewritten bytes.
pub trait ByteSink {
    /// Passes `range` of `chunk` on unchanged.
    fn pass(&mut self, chunk: &Bytes, range: Range<usize>);
    /// Writes new or copied bytes.
    fn put(&mut self, bytes: &[u8]);
}

/// Copies all bytes into one buffer: best for small objects.
impl ByteSink for BytesMut {
    fn pass(&mut self, chunk: &Bytes, range: Range<usize>) {
        self.extend_from_slice(&chunk[range]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Keeps slices of the input: best for large ones.
impl ByteSink for Vec<Bytes> {
    fn pass(&mut self, chunk: &Bytes, range: Range<usize>) {
        self.push(chunk.slice(range));
    }

    fn put(&mut self, bytes: &[u8]) {
        self.push(Bytes::copy_from_slice(bytes));
    }
}

#[cfg(test)]
mod tests;
