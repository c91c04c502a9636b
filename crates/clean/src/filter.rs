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

use crate::bidi::{BidiControls, Opening};
use crate::escape::EscapeSequence;
use crate::flag::{FLAG_TAGS, FlagTags, Tag};
use crate::kind::{Class, Counts, classify};
use crate::outlet::{Outlet, OutletState, Part};
use crate::port::{Port, Raw, Target};

/// An escape of the first half of a surrogate pair, until the next unit.
#[derive(Debug)]
struct HighSurrogate {
    code: u32,
    bytes: [u8; 6],
    start: Option<usize>,
}

/// The state between characters of one string.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    high: Option<HighSurrogate>,
    escape: EscapeSequence,
    flag: FlagTags,
    bidi: BidiControls,
    outlet: OutletState,
    counts: Counts,
}

macro_rules! outlet {
    ($filter:expr, $port:expr) => {
        &mut Outlet {
            state: &mut $filter.outlet,
            counts: &mut $filter.counts,
            port: $port,
        }
    };
}

impl Filter {
    pub(crate) const fn counts(&self) -> Counts {
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

    /// Takes bytes of plain characters. Not while [`Filter::reads_all`] holds.
    pub(crate) fn run<T: Target>(&mut self, raw: Raw<'_>, port: &mut Port<T>) {
        if self.is_idle() {
            return port.emit(raw);
        }
        self.release_high(port);
        self.flag.other(false, &mut self.counts);
        self.bidi.run(raw, outlet!(self, port));
    }

    /// Takes one unit: a character, half a surrogate pair, or bytes that are no character.
    pub(crate) fn unit<T: Target>(&mut self, code: u32, raw: Raw<'_>, port: &mut Port<T>) {
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
                Raw {
                    bytes: &bytes,
                    start,
                },
                port,
            );
        }
        self.release_high(port);
        if let (0xd800..=0xdbff, Ok(bytes)) = (code, <[u8; 6]>::try_from(raw.bytes)) {
            self.high = Some(HighSurrogate {
                code,
                bytes,
                start: raw.start,
            });
        } else {
            self.character(code, raw, port);
        }
    }

    /// The string ends: the held characters are decided.
    pub(crate) fn end<T: Target>(&mut self, port: &mut Port<T>) {
        if self.is_idle() {
            return;
        }
        self.release_high(port);
        self.escape.end();
        self.flag.end(&mut self.counts);
        let outlet = outlet!(self, port);
        self.bidi.end(outlet);
        outlet.end();
    }

    /// The chunk ends: positions in it are not valid in the next.
    pub(crate) const fn end_chunk(&mut self) {
        if let Some(high) = &mut self.high {
            high.start = None;
        }
    }

    fn release_high<T: Target>(&mut self, port: &mut Port<T>) {
        if let Some(high) = self.high.take() {
            self.character(
                high.code,
                Raw {
                    bytes: &high.bytes,
                    start: high.start,
                },
                port,
            );
        }
    }

    fn character<T: Target>(&mut self, code: u32, raw: Raw<'_>, port: &mut Port<T>) {
        if self.escape.takes(code, &mut self.counts) {
            return;
        }
        let class = classify(code);
        match class {
            Class::Control => return self.counts.controls += 1,
            Class::Variation => return self.counts.variation += 1,
            Class::Tag => return self.tag(code, raw, port),
            _ => self.flag.other(class == Class::Flag, &mut self.counts),
        }
        let outlet = outlet!(self, port);
        match class {
            Class::Embedding => self.bidi.opening(Opening::Embedding, raw.bytes, outlet),
            Class::Isolate => self.bidi.opening(Opening::Isolate, raw.bytes, outlet),
            Class::Override => self.bidi.opening(Opening::Override, raw.bytes, outlet),
            Class::EndOfEmbedding => self.bidi.end_of_embedding(raw.bytes, outlet),
            Class::EndOfIsolate => self.bidi.end_of_isolate(raw.bytes, outlet),
            Class::Private => self.bidi.part(Part::Private, 1, raw, outlet),
            _ => self.bidi.part(half(code), 1, raw, outlet),
        }
    }

    fn tag<T: Target>(&mut self, code: u32, raw: Raw<'_>, port: &mut Port<T>) {
        if let Tag::CompletesFlag = self.flag.tag(code, raw.bytes, &mut self.counts) {
            let tags = self.flag.take();
            self.bidi.part(
                Part::Plain,
                FLAG_TAGS as u64,
                Raw::copy(&tags),
                outlet!(self, port),
            );
        }
    }
}

/// The part of a plain character, which may be half of a surrogate pair.
const fn half(code: u32) -> Part {
    match code {
        0xd800..=0xdbff => Part::HighHalf,
        0xdc00..=0xdfff => Part::LowHalf,
        _ => Part::Plain,
    }
}
