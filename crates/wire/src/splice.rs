//! Editing one JSON object while its bytes pass.
//!
//! A gateway changes a few members of a message and must leave the rest alone, byte for byte, at
//! any size. [`Edits`] lists the changes at the top level and inside `_meta`. [`Rewriter`] makes
//! them in bounded memory over chunks of any size; [`Edits::apply`] makes them in a whole object at
//! once. Deeper levels are not touched, and values are replaced, never interpreted. [`Blocks`] and
//! [`StructuredAsText`] look one level deeper, and [`Texts`] changes single strings at any depth.

mod blocks;
mod edits;
mod passage;
mod rewriter;
mod structured;
mod texts;

use std::ops::Range;

use bytes::{Bytes, BytesMut};

pub use blocks::{Block, Blocks};
pub use edits::{Edits, MetaEdits};
pub(crate) use passage::Held;
pub use rewriter::{Observed, Rewriter, SpliceError};
pub use structured::{Carried, LeftOut, StructuredAsText};
pub use texts::{Retext, Step, Texts};

/// The output of rewritten bytes.
pub trait Sink {
    /// Passes `range` of `chunk` on unchanged.
    fn pass(&mut self, chunk: &Bytes, range: Range<usize>);
    /// Writes new or copied bytes.
    fn put(&mut self, bytes: &[u8]);
}

/// Copies all bytes into one buffer: best for small objects.
impl Sink for BytesMut {
    fn pass(&mut self, chunk: &Bytes, range: Range<usize>) {
        self.extend_from_slice(&chunk[range]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Keeps slices of the input: best for large ones.
impl Sink for Vec<Bytes> {
    fn pass(&mut self, chunk: &Bytes, range: Range<usize>) {
        self.push(chunk.slice(range));
    }

    fn put(&mut self, bytes: &[u8]) {
        self.push(Bytes::copy_from_slice(bytes));
    }
}

#[cfg(test)]
mod tests;
