//! The last step before the way out: runs of private-use characters, and halves of surrogate pairs.

use crate::cleaned_output::{CleanedOutput, PieceTarget, SpelledPiece};
use crate::removals::{PRIVATE_RUN, RemovalCounts};

/// The parts of a string that the last step tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StringPart {
    Plain,
    /// A private-use character.
    Private,
    /// The first half of a surrogate pair, without its second. JSON allows that.
    HighHalf,
    /// The second half of a surrogate pair, without its first.
    LowHalf,
}

/// The state between parts.
#[derive(Debug, Default)]
pub(crate) struct OutletState {
    /// The private-use characters of the run so far.
    run: u64,
    /// The first ones, as they are spelled.
    held: Vec<u8>,
    /// True if the last character emitted was the first half of a surrogate pair.
    after_half: bool,
}

impl OutletState {
    /// True if the next character matters.
    pub(crate) const fn is_open(&self) -> bool {
        self.run > 0 || self.after_half
    }
}

/// The last step with its state: all kept text goes through it.
pub(crate) struct FilterOutlet<'a, T> {
    pub(crate) state: &'a mut OutletState,
    pub(crate) counts: &'a mut RemovalCounts,
    pub(crate) output: &'a mut CleanedOutput<T>,
}

impl<T: PieceTarget> FilterOutlet<'_, T> {
    pub(crate) fn emit(&mut self, part: StringPart, raw: SpelledPiece<'_>) {
        match part {
            StringPart::Private => return self.private(raw.bytes),
            // Two halves that were apart would join to one character, perhaps one of the table.
            StringPart::LowHalf if self.state.after_half && self.state.held.is_empty() => {
                return self.counts.controls += 1;
            }
            StringPart::Plain | StringPart::HighHalf | StringPart::LowHalf => {}
        }
        self.end_run();
        self.output.emit(raw);
        self.state.after_half = part == StringPart::HighHalf;
    }

    /// The string ends.
    pub(crate) fn end(&mut self) {
        self.end_run();
        self.state.after_half = false;
    }

    fn private(&mut self, bytes: &[u8]) {
        self.state.run += 1;
        if self.state.run < PRIVATE_RUN {
            self.state.held.extend_from_slice(bytes);
        } else {
            self.counts.private += if self.state.run == PRIVATE_RUN {
                PRIVATE_RUN
            } else {
                1
            };
            self.state.held.clear();
        }
    }

    /// Ends a run: a short one is emitted.
    fn end_run(&mut self) {
        self.state.run = 0;
        if !self.state.held.is_empty() {
            self.output.emit(SpelledPiece::copy(&self.state.held));
            self.state.held.clear();
            self.state.after_half = false;
        }
    }
}
