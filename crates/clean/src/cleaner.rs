//! The streaming form, which is the only engine: the whole form is one chunk.

use bytes::Bytes;
use weir_wire::splice::ByteSink;

use crate::bidi::BIDI_WINDOW;
use crate::character_spelling::{CharacterSpelling, NOT_A_CHARACTER, SpellingProgress};
use crate::cleaned_output::{CleanedOutput, CopiedChunk, PieceTarget, SharedChunk, SpelledPiece};
use crate::document::DocumentKind;
use crate::document_walker::DocumentWalker;
use crate::filter::CharacterFilter;
use crate::quiet_scan::{plain_run, text_run};
use crate::removals::RemovalCounts;

/// The most bytes of its input that a [`Cleaner`] holds back: the longest stretch between an
/// opening bidirectional control and its partner, of characters in their longest spelling (twelve
/// bytes, two escapes), and a few that are not decided for other reasons.
///
/// That much is held behind an opening bidirectional control only; otherwise at most 72 bytes are.
pub const HELD_MAX: usize = (BIDI_WINDOW as usize + 16) * 12;

/// Cleans one JSON text that comes in chunks.
///
/// The output is the same for every division into chunks, and that of [`clean`](crate::clean). It
/// never fails: bytes that are no JSON pass, or lose the parts that look like a string of the
/// document. Chunks may end anywhere, within characters and escapes too.
#[derive(Debug)]
pub struct Cleaner {
    walker: DocumentWalker,
    /// The character that is being read.
    unit: CharacterSpelling,
    /// Its position, if it began in this chunk.
    unit_start: Option<usize>,
    filter: CharacterFilter,
}

impl Cleaner {
    /// A cleaner for one text of this kind.
    #[must_use]
    pub fn new(document: DocumentKind) -> Self {
        Self {
            walker: DocumentWalker::new(document),
            unit: CharacterSpelling::default(),
            unit_start: None,
            filter: CharacterFilter::default(),
        }
    }

    /// Takes the next chunk, and emits the decided bytes. Bytes that stay pass as ranges of the
    /// chunk.
    pub fn feed(&mut self, chunk: &Bytes, out: &mut impl ByteSink) {
        self.chunk(chunk, SharedChunk { chunk, sink: out });
    }

    /// [`Cleaner::feed`] with a borrowed chunk.
    pub(crate) fn feed_slice(&mut self, chunk: &[u8], buffer: &mut Vec<u8>) {
        self.chunk(chunk, CopiedChunk { chunk, buffer });
    }

    /// The removals so far. Held bytes are not counted yet.
    #[must_use]
    pub const fn removed(&self) -> RemovalCounts {
        self.filter.counts()
    }

    /// Ends the text, and emits the bytes still held: an empty rest, if it was JSON. Returns the
    /// removals.
    pub fn finish(self, out: &mut impl ByteSink) -> RemovalCounts {
        self.end(SharedChunk {
            chunk: &Bytes::new(),
            sink: out,
        })
    }

    /// [`Cleaner::finish`] into a buffer.
    pub(crate) fn finish_slice(self, buffer: &mut Vec<u8>) -> RemovalCounts {
        self.end(CopiedChunk { chunk: &[], buffer })
    }

    fn chunk(&mut self, bytes: &[u8], target: impl PieceTarget) {
        let mut output = CleanedOutput::new(target);
        let mut pos = 0;
        while pos < bytes.len() {
            if self.walker.is_in_text() {
                pos = self.text(bytes, pos, &mut output);
            } else {
                let len = self.walker.advance(&bytes[pos..]);
                output.emit(SpelledPiece {
                    bytes: &bytes[pos..pos + len],
                    start: Some(pos),
                });
                pos += len;
            }
        }
        self.unit_start = None;
        self.filter.end_chunk();
        output.flush();
    }

    fn end(mut self, target: impl PieceTarget) -> RemovalCounts {
        let mut output = CleanedOutput::new(target);
        if !self.unit.is_empty() {
            self.filter.unit(
                NOT_A_CHARACTER,
                SpelledPiece::copy(self.unit.bytes()),
                &mut output,
            );
        }
        self.filter.end(&mut output);
        output.flush();
        self.filter.counts()
    }

    /// Reads a string from `pos` to its end or to that of the chunk. Returns the position after the
    /// last byte read.
    fn text<T: PieceTarget>(
        &mut self,
        bytes: &[u8],
        mut pos: usize,
        output: &mut CleanedOutput<T>,
    ) -> usize {
        while pos < bytes.len() {
            if self.unit.is_empty() && !self.filter.reads_all() {
                let run = if self.filter.is_idle() {
                    text_run
                } else {
                    plain_run
                };
                let len = run(&bytes[pos..]);
                if len > 0 {
                    self.filter.run(
                        SpelledPiece {
                            bytes: &bytes[pos..pos + len],
                            start: Some(pos),
                        },
                        output,
                    );
                    pos += len;
                    continue;
                }
            }
            if self.unit.is_empty() {
                if bytes[pos] == b'"' {
                    self.filter.end(output);
                    self.walker.end_text();
                    output.emit(SpelledPiece {
                        bytes: b"\"",
                        start: Some(pos),
                    });
                    return pos + 1;
                }
                self.unit_start = Some(pos);
            }
            pos += self.byte(bytes[pos], output);
        }
        pos
    }

    /// Takes a byte into the character that is being read. Returns 0 for a byte that does not
    /// belong to it.
    fn byte<T: PieceTarget>(&mut self, byte: u8, output: &mut CleanedOutput<T>) -> usize {
        let progress = self.unit.push(byte);
        let code = match progress {
            SpellingProgress::More => return 1,
            SpellingProgress::Complete(code) => code,
            SpellingProgress::Broken => NOT_A_CHARACTER,
        };
        let raw = SpelledPiece {
            bytes: self.unit.bytes(),
            start: self.unit_start,
        };
        self.filter.unit(code, raw, output);
        self.unit.clear();
        usize::from(progress != SpellingProgress::Broken)
    }
}
