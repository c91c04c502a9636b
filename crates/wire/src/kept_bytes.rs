//! Bytes that are kept until they are complete.

use bytes::{Bytes, BytesMut};

/// Kept bytes: a slice while it is one chunk, copied from the second on.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    first: Bytes,
    rest: BytesMut,
}

impl KeptBytes {
    /// The count of bytes.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Appends a chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if self.len() == 0 {
            self.first = chunk;
        } else if !chunk.is_empty() {
            self.rest
                .extend_from_slice(&std::mem::take(&mut self.first));
            self.rest.extend_from_slice(&chunk);
        }
    }

    /// Takes all bytes out.
    pub(crate) fn take(&mut self) -> Bytes {
        if self.rest.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            self.rest.split().freeze()
        }
    }
}
