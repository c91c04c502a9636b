//! The output of the cleaner: joins neighbouring runs of a chunk into one piece.

use std::ops::Range;

use bytes::Bytes;
use weir_wire::splice::ByteSink;

/// The destination of pieces of a chunk and of other bytes.
pub(crate) trait PieceTarget {
    /// A range of the chunk.
    fn pass(&mut self, range: Range<usize>);
    /// Other bytes, or copies of earlier ones.
    fn put(&mut self, bytes: &[u8]);
}

/// A chunk that is shared, and the sink that takes slices of it.
pub(crate) struct SharedChunk<'a, S> {
    pub(crate) chunk: &'a Bytes,
    pub(crate) sink: &'a mut S,
}

impl<S: ByteSink> PieceTarget for SharedChunk<'_, S> {
    fn pass(&mut self, range: Range<usize>) {
        self.sink.pass(self.chunk, range);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.sink.put(bytes);
    }
}

/// A chunk that is borrowed, and the buffer it is copied to.
pub(crate) struct CopiedChunk<'a> {
    pub(crate) chunk: &'a [u8],
    pub(crate) buffer: &'a mut Vec<u8>,
}

impl PieceTarget for CopiedChunk<'_> {
    fn pass(&mut self, range: Range<usize>) {
        self.buffer.extend_from_slice(&self.chunk[range]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }
}

/// Bytes to emit, and their position in the current chunk if all of them are in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpelledPiece<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) start: Option<usize>,
}

impl<'a> SpelledPiece<'a> {
    /// Bytes that are a copy.
    pub(crate) const fn copy(bytes: &'a [u8]) -> Self {
        Self { bytes, start: None }
    }

    pub(crate) fn split_at(self, middle: usize) -> (Self, Self) {
        let (bytes, rest) = self.bytes.split_at(middle);
        (
            Self {
                bytes,
                start: self.start,
            },
            Self {
                bytes: rest,
                start: self.start.map(|start| start + middle),
            },
        )
    }
}

/// The output for one chunk. Must be flushed at its end.
pub(crate) struct CleanedOutput<T> {
    passed: Range<usize>,
    target: T,
}

impl<T: PieceTarget> CleanedOutput<T> {
    pub(crate) const fn new(target: T) -> Self {
        Self {
            passed: 0..0,
            target,
        }
    }

    pub(crate) fn emit(&mut self, raw: SpelledPiece<'_>) {
        match raw.start {
            Some(start) if start == self.passed.end => self.passed.end += raw.bytes.len(),
            Some(start) => {
                self.flush();
                self.passed = start..start + raw.bytes.len();
            }
            None if raw.bytes.is_empty() => {}
            None => {
                self.flush();
                self.target.put(raw.bytes);
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        let passed = std::mem::replace(&mut self.passed, 0..0);
        if !passed.is_empty() {
            self.target.pass(passed);
        }
    }
}
