//! Held bytes of large results: see [`weir_core::hold`].

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// The size of one allocation. Held bytes take no more memory than their number, for any size of
/// the pieces they came in.
const BLOCK_SIZE: usize = 64 << 10;

/// Held bytes.
#[derive(Debug, Default)]
pub(crate) struct HeldBlocks {
    full: VecDeque<Bytes>,
    last: BytesMut,
    size: usize,
}

impl HeldBlocks {
    pub(crate) fn len(&self) -> usize {
        self.size
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.size += bytes.len();
        while !bytes.is_empty() {
            if self.last.capacity() == 0 {
                self.last = BytesMut::with_capacity(BLOCK_SIZE);
            }
            let now = bytes.len().min(BLOCK_SIZE - self.last.len());
            self.last.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
            if self.last.len() == BLOCK_SIZE {
                self.full.push_back(std::mem::take(&mut self.last).freeze());
            }
        }
    }

    /// Takes out the first bytes, at most one block.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let block = self.full.pop_front().or_else(|| {
            let last = std::mem::take(&mut self.last).freeze();
            Some(last).filter(|last| !last.is_empty())
        })?;
        self.size -= block.len();
        Some(block)
    }

    /// Joins all blocks, followed by `rest`.
    pub(crate) fn join(mut self, rest: &[u8]) -> Bytes {
        let mut all = BytesMut::with_capacity(self.size + rest.len());
        while let Some(block) = self.pop() {
            all.extend_from_slice(&block);
        }
        all.extend_from_slice(rest);
        all.freeze()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn bytes_are_held_in_full_blocks() {
        let text: Vec<u8> = (0..200_000_u32)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        for size in [1, 7, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, text.len()] {
            let mut blocks = HeldBlocks::default();
            text.chunks(size).for_each(|piece| blocks.push(piece));
            assert_eq!(blocks.len(), text.len());
            assert_eq!(blocks.full.len(), text.len() / BLOCK_SIZE);
            assert_eq!(blocks.join(b"}"), [&text[..], b"}"].concat(), "{size}");
        }
    }
}
