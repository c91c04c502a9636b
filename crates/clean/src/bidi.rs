//! Bidirectional controls and their partners.
//!
//! PDI ends the innermost isolate and every embedding in it; PDF ends the innermost embedding of
//! the same isolate (UAX #9, BD9 and X5a to X7). A character without partner is removed. The
//! partner of an opening control is known only later, so all text behind it is held, for
//! [`BIDI_WINDOW`] characters at most: an opening control that is not closed by then counts as one
//! without partner. The rule is the same for a whole text, so that both forms agree.

use std::collections::VecDeque;

use crate::cleaned_output::{PieceTarget, SpelledPiece};
use crate::outlet::{FilterOutlet, StringPart};

/// The farthest position of a closing control: this number of characters behind the opening one.
pub const BIDI_WINDOW: u64 = 4096;

/// The kinds of opening controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BidiOpening {
    Embedding,
    Isolate,
    /// Always removed; its PDF with it.
    Override,
}

#[derive(Debug)]
struct OpenControl {
    kind: BidiOpening,
    /// Its number among all pieces; an override has no number.
    piece: Option<u64>,
    /// Characters of the string before it.
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceFate {
    /// An opening control without partner so far.
    Undecided,
    Kept(StringPart),
    Removed,
}

#[derive(Debug)]
struct BidiPiece {
    fate: PieceFate,
    len: usize,
}

/// Opening controls that wait for their partner, and what follows the first of them.
#[derive(Debug, Default)]
pub(crate) struct BidiControls {
    /// Not closed yet, oldest first.
    open: VecDeque<OpenControl>,
    isolates: usize,
    /// Characters of the string since the first open control.
    chars: u64,
    /// The held text. The first piece is undecided, if there is one.
    pieces: VecDeque<BidiPiece>,
    /// The number of the first piece.
    first: u64,
    /// Their bytes, behind `gone` bytes that were emitted already.
    text: Vec<u8>,
    gone: usize,
}

impl BidiControls {
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes bytes of plain characters, in any number.
    pub(crate) fn run<T: PieceTarget>(
        &mut self,
        mut raw: SpelledPiece<'_>,
        outlet: &mut FilterOutlet<'_, T>,
    ) {
        while let Some(oldest) = self.open.front() {
            let (len, chars) = prefix(
                raw.bytes,
                (oldest.at + BIDI_WINDOW + 1).saturating_sub(self.chars),
            );
            let (before, rest) = raw.split_at(len);
            self.chars += chars;
            self.hold(StringPart::Plain, before, outlet);
            if rest.bytes.is_empty() {
                return;
            }
            raw = rest;
            self.expire(outlet);
        }
        self.hold(StringPart::Plain, raw, outlet);
    }

    /// Takes a unit without a rule in this step: one character, or several that stay together.
    pub(crate) fn part<T: PieceTarget>(
        &mut self,
        part: StringPart,
        chars: u64,
        raw: SpelledPiece<'_>,
        outlet: &mut FilterOutlet<'_, T>,
    ) {
        self.count(chars, outlet);
        self.hold(part, raw, outlet);
    }

    pub(crate) fn opening<T: PieceTarget>(
        &mut self,
        kind: BidiOpening,
        bytes: &[u8],
        outlet: &mut FilterOutlet<'_, T>,
    ) {
        self.count(1, outlet);
        let mut piece = None;
        if kind == BidiOpening::Override {
            outlet.counts.bidi += 1;
        } else {
            piece = Some(self.first + self.pieces.len() as u64);
            self.push(PieceFate::Undecided, bytes);
        }
        self.isolates += usize::from(kind == BidiOpening::Isolate);
        let at = self.chars.saturating_sub(1);
        self.open.push_back(OpenControl { kind, piece, at });
    }

    /// PDF.
    pub(crate) fn end_of_embedding<T: PieceTarget>(
        &mut self,
        bytes: &[u8],
        outlet: &mut FilterOutlet<'_, T>,
    ) {
        self.count(1, outlet);
        match self.open.back().map(|opener| opener.kind) {
            Some(BidiOpening::Embedding) => self.close(bytes, outlet),
            Some(BidiOpening::Override) => {
                self.open.pop_back();
                outlet.counts.bidi += 1;
            }
            Some(BidiOpening::Isolate) | None => outlet.counts.bidi += 1,
        }
    }

    /// PDI.
    pub(crate) fn end_of_isolate<T: PieceTarget>(
        &mut self,
        bytes: &[u8],
        outlet: &mut FilterOutlet<'_, T>,
    ) {
        self.count(1, outlet);
        if self.isolates == 0 {
            outlet.counts.bidi += 1;
            return;
        }
        while self
            .open
            .back()
            .is_some_and(|opener| opener.kind != BidiOpening::Isolate)
        {
            if let Some(opener) = self.open.pop_back() {
                self.remove(&opener, outlet);
            }
        }
        self.isolates -= 1;
        self.close(bytes, outlet);
    }

    /// The string ends: all open controls stay without partner.
    pub(crate) fn end<T: PieceTarget>(&mut self, outlet: &mut FilterOutlet<'_, T>) {
        while let Some(opener) = self.open.pop_front() {
            self.remove(&opener, outlet);
        }
        self.release(outlet);
        (self.isolates, self.chars) = (0, 0);
    }

    /// The innermost opening control has its partner.
    fn close<T: PieceTarget>(&mut self, bytes: &[u8], outlet: &mut FilterOutlet<'_, T>) {
        if let Some(opener) = self.open.pop_back() {
            self.decide(&opener, PieceFate::Kept(StringPart::Plain));
        }
        self.push(PieceFate::Kept(StringPart::Plain), bytes);
        self.release(outlet);
    }

    /// Counts the next characters. Opening controls that are too far behind them have no partner.
    fn count<T: PieceTarget>(&mut self, chars: u64, outlet: &mut FilterOutlet<'_, T>) {
        if self.open.is_empty() {
            self.chars = 0;
        } else {
            self.expire(outlet);
        }
        self.chars += chars;
    }

    fn expire<T: PieceTarget>(&mut self, outlet: &mut FilterOutlet<'_, T>) {
        let before = self.open.len();
        while self
            .open
            .front()
            .is_some_and(|opener| opener.at + BIDI_WINDOW < self.chars)
        {
            if let Some(opener) = self.open.pop_front() {
                self.isolates -= usize::from(opener.kind == BidiOpening::Isolate);
                self.remove(&opener, outlet);
            }
        }
        if self.open.len() < before {
            self.release(outlet);
        }
    }

    fn remove<T>(&mut self, opener: &OpenControl, outlet: &mut FilterOutlet<'_, T>) {
        if opener.piece.is_some() {
            outlet.counts.bidi += 1;
            self.decide(opener, PieceFate::Removed);
        }
    }

    fn decide(&mut self, opener: &OpenControl, fate: PieceFate) {
        let place = opener
            .piece
            .and_then(|piece| usize::try_from(piece - self.first).ok());
        if let Some(piece) = place.and_then(|place| self.pieces.get_mut(place)) {
            piece.fate = fate;
        }
    }

    /// Holds text behind an undecided control; emits all other text.
    fn hold<T: PieceTarget>(
        &mut self,
        part: StringPart,
        raw: SpelledPiece<'_>,
        outlet: &mut FilterOutlet<'_, T>,
    ) {
        if raw.bytes.is_empty() {
        } else if self.pieces.is_empty() {
            outlet.emit(part, raw);
        } else {
            self.push(PieceFate::Kept(part), raw.bytes);
        }
    }

    fn push(&mut self, fate: PieceFate, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            Some(last) if last.fate == fate && fate == PieceFate::Kept(StringPart::Plain) => {
                last.len += bytes.len()
            }
            _ => self.pieces.push_back(BidiPiece {
                fate,
                len: bytes.len(),
            }),
        }
    }

    /// Emits or drops the decided pieces.
    fn release<T: PieceTarget>(&mut self, outlet: &mut FilterOutlet<'_, T>) {
        while let Some(piece) = self.pieces.front()
            && piece.fate != PieceFate::Undecided
        {
            let end = self.gone + piece.len;
            if let PieceFate::Kept(part) = piece.fate {
                outlet.emit(part, SpelledPiece::copy(&self.text[self.gone..end]));
            }
            self.gone = end;
            self.first += 1;
            self.pieces.pop_front();
        }
        // Moving the rest to the front costs no more than the bytes emitted since.
        if self.gone * 2 >= self.text.len() {
            self.text.drain(..self.gone);
            self.gone = 0;
        }
    }
}

/// The length of at most this number of characters at the beginning, and their number.
fn prefix(bytes: &[u8], most: u64) -> (usize, u64) {
    let mut chars = 0;
    for (pos, &byte) in bytes.iter().enumerate() {
        if byte & 0xc0 != 0x80 {
            if chars == most {
                return (pos, chars);
            }
            chars += 1;
        }
    }
    (bytes.len(), chars)
}
