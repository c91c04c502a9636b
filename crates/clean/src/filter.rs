//! The steps that remove characters of a string.
//!
//! 1. Escape sequences, then single characters that are always removed: controls and variation
//!    selectors.
//! 2. Tags outside of flags.
//! 3. Bidirectional controls without partner.
//! 4. Private-use characters in long runs, and halves of surrogate pairs that a removal would join.
//!
//! A step does not see the characters that an earlier one removed. So no later removal joins
//! characters that an earlier step would remove, and cleaning twice is cleaning once: the first
//! step leaves no beginning of a sequence; flags are whole and stay so; pairs stay nested as they
//! were; runs come last.

use crate::bidi::{BidiControls, BidiOpening};
use crate::cleaned_output::{CleanedOutput, PieceTarget, SpelledPiece};
use crate::escape::EscapeSequence;
use crate::flag::{FLAG_TAGS, FlagTags, TagOutcome};
use crate::outlet::{FilterOutlet, OutletState, StringPart};
use crate::removals::{CharacterClass, RemovalCounts, classify};

/// An escape of the first half of a surrogate pair, until the next unit.
#[derive(Debug)]
struct HighSurrogate {
    code: u32,
    bytes: [u8; 6],
    start: Option<usize>,
}

/// The state between characters of one string.
#[derive(Debug, Default)]
pub(crate) struct CharacterFilter {
    high: Option<HighSurrogate>,
    escape: EscapeSequence,
    flag: FlagTags,
    bidi: BidiControls,
    outlet: OutletState,
    counts: RemovalCounts,
}

macro_rules! outlet {
    ($filter:expr, $output:expr) => {
        &mut FilterOutlet {
            state: &mut $filter.outlet,
            counts: &mut $filter.counts,
            output: $output,
        }
    };
}

impl CharacterFilter {
    pub(crate) const fn counts(&self) -> RemovalCounts {
        self.counts
    }

    /// True if every character must be seen, not only those of the table.
    pub(crate) fn reads_all(&self) -> bool {
        self.escape.is_open()
    }

    /// True if plain characters change no state here.
    pub(crate) fn is_idle(&self) -> bool {
        self.high.is_none()
            && !self.escape.is_open()
            && !self.flag.is_open()
            && !self.bidi.is_open()
            && !self.outlet.is_open()
    }

    /// Takes bytes of plain characters. Not while [`CharacterFilter::reads_all`] holds.
    pub(crate) fn run<T: PieceTarget>(
        &mut self,
        raw: SpelledPiece<'_>,
        output: &mut CleanedOutput<T>,
    ) {
        if self.is_idle() {
            return output.emit(raw);
        }
        self.release_high(output);
        self.flag.other(false, &mut self.counts);
        self.bidi.run(raw, outlet!(self, output));
    }

    /// Takes one unit: a character, half a surrogate pair, or bytes that are no character.
    pub(crate) fn unit<T: PieceTarget>(
        &mut self,
        code: u32,
        raw: SpelledPiece<'_>,
        output: &mut CleanedOutput<T>,
    ) {
        if let (Some(high), 0xdc00..=0xdfff) = (&self.high, code) {
            let mut bytes = [0; 12];
            bytes[..6].copy_from_slice(&high.bytes);
            bytes[6..]
                .iter_mut()
                .zip(raw.bytes)
                .for_each(|(place, byte)| *place = *byte);
            let start = high
                .start
                .filter(|start| raw.start == Some(start + high.bytes.len()));
            let code = 0x1_0000 + ((high.code - 0xd800) << 10) + (code - 0xdc00);
            self.high = None;
            return self.character(
                code,
                SpelledPiece {
                    bytes: &bytes,
                    start,
                },
                output,
            );
        }
        self.release_high(output);
        if let (0xd800..=0xdbff, Ok(bytes)) = (code, <[u8; 6]>::try_from(raw.bytes)) {
            self.high = Some(HighSurrogate {
                code,
                bytes,
                start: raw.start,
            });
        } else {
            self.character(code, raw, output);
        }
    }

    /// The string ends: the held characters are decided.
    pub(crate) fn end<T: PieceTarget>(&mut self, output: &mut CleanedOutput<T>) {
        if self.is_idle() {
            return;
        }
        self.release_high(output);
        self.escape.end();
        self.flag.end(&mut self.counts);
        let outlet = outlet!(self, output);
        self.bidi.end(outlet);
        outlet.end();
    }

    /// The chunk ends: positions in it are not valid in the next.
    pub(crate) const fn end_chunk(&mut self) {
        if let Some(high) = &mut self.high {
            high.start = None;
        }
    }

    fn release_high<T: PieceTarget>(&mut self, output: &mut CleanedOutput<T>) {
        if let Some(high) = self.high.take() {
            self.character(
                high.code,
                SpelledPiece {
                    bytes: &high.bytes,
                    start: high.start,
                },
                output,
            );
        }
    }

    fn character<T: PieceTarget>(
        &mut self,
        code: u32,
        raw: SpelledPiece<'_>,
        output: &mut CleanedOutput<T>,
    ) {
        if self.escape.takes(code, &mut self.counts) {
            return;
        }
        let class = classify(code);
        match class {
            CharacterClass::Control => return self.counts.controls += 1,
            CharacterClass::Variation => return self.counts.variation += 1,
            CharacterClass::Tag => return self.tag(code, raw, output),
            CharacterClass::Plain
            | CharacterClass::Flag
            | CharacterClass::Embedding
            | CharacterClass::Override
            | CharacterClass::EndOfEmbedding
            | CharacterClass::Isolate
            | CharacterClass::EndOfIsolate
            | CharacterClass::Private => self
                .flag
                .other(class == CharacterClass::Flag, &mut self.counts),
        }
        let outlet = outlet!(self, output);
        match class {
            CharacterClass::Embedding => {
                self.bidi.opening(BidiOpening::Embedding, raw.bytes, outlet)
            }
            CharacterClass::Isolate => self.bidi.opening(BidiOpening::Isolate, raw.bytes, outlet),
            CharacterClass::Override => self.bidi.opening(BidiOpening::Override, raw.bytes, outlet),
            CharacterClass::EndOfEmbedding => self.bidi.end_of_embedding(raw.bytes, outlet),
            CharacterClass::EndOfIsolate => self.bidi.end_of_isolate(raw.bytes, outlet),
            CharacterClass::Private => self.bidi.part(StringPart::Private, 1, raw, outlet),
            CharacterClass::Plain
            | CharacterClass::Control
            | CharacterClass::Flag
            | CharacterClass::Tag
            | CharacterClass::Variation => self.bidi.part(half(code), 1, raw, outlet),
        }
    }

    fn tag<T: PieceTarget>(
        &mut self,
        code: u32,
        raw: SpelledPiece<'_>,
        output: &mut CleanedOutput<T>,
    ) {
        if let TagOutcome::CompletesFlag = self.flag.tag(code, raw.bytes, &mut self.counts) {
            let tags = self.flag.take();
            self.bidi.part(
                StringPart::Plain,
                FLAG_TAGS as u64,
                SpelledPiece::copy(&tags),
                outlet!(self, output),
            );
        }
    }
}

/// The part of a plain character, which may be half of a surrogate pair.
const fn half(code: u32) -> StringPart {
    match code {
        0xd800..=0xdbff => StringPart::HighHalf,
        0xdc00..=0xdfff => StringPart::LowHalf,
        _ => StringPart::Plain,
    }
}
