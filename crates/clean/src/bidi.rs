//! Bidirectional controls and their partners.
//!
//! PDI ends the innermost isolate and every embedding in it; PDF ends the innermost embedding of
//! the same isolate (UAX #9, BD9 and X5a to X7). A character without partner is removed. The
//! partner of an opening control is known only later, so all text behind it is held, for [`WINDOW`]
//! characters at most: an opening control that is not closed by then counts as one without partner.
//! The rule is the same for a whole text, so that both forms agree.

use std::collections::VecDeque;

use crate::outlet::{Outlet, Part};
use crate::port::{Raw, Target};

/// The farthest position of a closing control: this number of characters behind the opening one.
pub const WINDOW: u64 = 4096;

/// The kinds of opening controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Embedding,
    Isolate,
    /// Always removed; its PDF with it.
    Override,
}

#[derive(Debug)]
struct Opener {
    kind: Opening,
    /// Its number among all pieces; an override has no number.
    piece: Option<u64>,
    /// Characters of the string before it.
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// An opening control without partner so far.
    Undecided,
    Kept(Part),
    Removed,
}

#[derive(Debug)]
struct Piece {
    fate: Fate,
    len: usize,
}

/// Opening controls that wait for their partner, and what follows the first of them.
#[derive(Debug, Default)]
pub(crate) struct BidiControls {
    /// Not closed yet, oldest first.
    open: VecDeque<Opener>,
    isolates: usize,
    /// Characters of the string since the first open control.
    chars: u64,
    /// The held text. The first piece is undecided, if there is one.
    pieces: VecDeque<Piece>,
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
    pub(crate) fn run<T: Target>(&mut self, mut raw: Raw<'_>, outlet: &mut Outlet<'_, T>) {
        while let Some(oldest) = self.open.front() {
            let (len, chars) = prefix(
                raw.bytes,
                (oldest.at + WINDOW + 1).saturating_sub(self.chars),
            );
            let (before, rest) = raw.split_at(len);
            self.chars += chars;
            self.hold(Part::Plain, before, outlet);
            if rest.bytes.is_empty() {
                return;
            }
            raw = rest;
            self.expire(outlet);
        }
        self.hold(Part::Plain, raw, outlet);
    }

    /// Takes a unit without a rule in this step: one character, or several that stay together.
    pub(crate) fn part<T: Target>(
        &mut self,
        part: Part,
        chars: u64,
        raw: Raw<'_>,
        outlet: &mut Outlet<'_, T>,
    ) {
        self.count(chars, outlet);
        self.hold(part, raw, outlet);
    }

    pub(crate) fn opening<T: Target>(
        &mut self,
        kind: Opening,
        bytes: &[u8],
        outlet: &mut Outlet<'_, T>,
    ) {
        self.count(1, outlet);
        let mut piece = None;
        if kind == Opening::Override {
            outlet.counts.bidi += 1;
        } else {
            piece = Some(self.first + self.pieces.len() as u64);
            self.push(Fate::Undecided, bytes);
        }
        self.isolates += usize::from(kind == Opening::Isolate);
        let at = self.chars.saturating_sub(1);
        self.open.push_back(Opener { kind, piece, at });
    }

    /// PDF.
    pub(crate) fn end_of_embedding<T: Target>(&mut self, bytes: &[u8], outlet: &mut Outlet<'_, T>) {
        self.count(1, outlet);
        match self.open.back().map(|opener| opener.kind) {
            Some(Opening::Embedding) => self.close(bytes, outlet),
            Some(Opening::Override) => {
                self.open.pop_back();
                outlet.counts.bidi += 1;
            }
            Some(Opening::Isolate) | None => outlet.counts.bidi += 1,
        }
    }

    /// PDI.
    pub(crate) fn end_of_isolate<T: Target>(&mut self, bytes: &[u8], outlet: &mut Outlet<'_, T>) {
        self.count(1, outlet);
        if self.isolates == 0 {
            outlet.counts.bidi += 1;
            return;
        }
        while self
            .open
            .back()
            .is_some_and(|opener| opener.kind != Opening::Isolate)
        {
            if let Some(opener) = self.open.pop_back() {
                self.remove(&opener, outlet);
            }
        }
        self.isolates -= 1;
        self.close(bytes, outlet);
    }

    /// The string ends: all open controls stay without partner.
    pub(crate) fn end<T: Target>(&mut self, outlet: &mut Outlet<'_, T>) {
        while let Some(opener) = self.open.pop_front() {
            self.remove(&opener, outlet);
        }
        self.release(outlet);
        (self.isolates, self.chars) = (0, 0);
    }

    /// The innermost opening control has its partner.
    fn close<T: Target>(&mut self, bytes: &[u8], outlet: &mut Outlet<'_, T>) {
        if let Some(opener) = self.open.pop_back() {
            self.decide(&opener, Fate::Kept(Part::Plain));
        }
        self.push(Fate::Kept(Part::Plain), bytes);
        self.release(outlet);
    }

    /// Counts the next characters. Opening controls that are too far behind them have no partner.
    fn count<T: Target>(&mut self, chars: u64, outlet: &mut Outlet<'_, T>) {
        if self.open.is_empty() {
            self.chars = 0;
        } else {
            self.expire(outlet);
        }
        self.chars += chars;
    }

    fn expire<T: Target>(&mut self, outlet: &mut Outlet<'_, T>) {
        let before = self.open.len();
        while self
            .open
            .front()
            .is_some_and(|opener| opener.at + WINDOW < self.chars)
        {
            if let Some(opener) = self.open.pop_front() {
                self.isolates -= usize::from(opener.kind == Opening::Isolate);
                self.remove(&opener, outlet);
            }
        }
        if self.open.len() < before {
            self.release(outlet);
        }
    }

    fn remove<T>(&mut self, opener: &Opener, outlet: &mut Outlet<'_, T>) {
        if opener.piece.is_some() {
            outlet.counts.bidi += 1;
            self.decide(opener, Fate::Removed);
        }
    }

    fn decide(&mut self, opener: &Opener, fate: Fate) {
        let place = opener
            .piece
            .and_then(|piece| usize::try_from(piece - self.first).ok());
        if let Some(piece) = place.and_then(|place| self.pieces.get_mut(place)) {
            piece.fate = fate;
        }
    }

    /// Holds text behind an undecided control; emits all other text.
    fn hold<T: Target>(&mut self, part: Part, raw: Raw<'_>, outlet: &mut Outlet<'_, T>) {
        if raw.bytes.is_empty() {
        } else if self.pieces.is_empty() {
            outlet.emit(part, raw);
        } else {
            self.push(Fate::Kept(part), raw.bytes);
        }
    }

    fn push(&mut self, fate: Fate, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            Some(last) if last.fate == fate && fate == Fate::Kept(Part::Plain) => {
                last.len += bytes.len()
            }
            _ => self.pieces.push_back(Piece {
                fate,
                len: bytes.len(),
            }),
        }
    }

    /// Emits or drops the decided pieces.
    fn release<T: Target>(&mut self, outlet: &mut Outlet<'_, T>) {
        while let Some(piece) = self.pieces.front()
            && piece.fate != Fate::Undecided
        {
            let end = self.gone + piece.len;
            if let Fate::Kept(part) = piece.fate {
                outlet.emit(part, Raw::copy(&self.text[self.gone..end]));
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
