//! The filter of a result's own members, without those that are kept to the end.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::scan::scan_error::{ScanError, ScanErrorKind};
use crate::splice::splice_output::HeldMember;
use crate::write;

/// The members of a result that are kept to its end.
pub const WITHHELD: [&str; 5] = [
    "resultType",
    "requestState",
    "inputRequests",
    "taskId",
    "_meta",
];

/// Reads one result object by the events of its message's lexer, which reports depth 2 meanwhile.
#[derive(Debug, Default)]
pub(super) struct WithheldMembers {
    mode: WithholdMode,
    /// White space, comma and key in front of a value.
    held: HeldMember,
    /// True once a member was emitted, so that the next one needs a comma.
    occupied: bool,
    /// The values of [`WITHHELD`] that were read.
    kept: [Option<Vec<u8>>; WITHHELD.len()],
    /// The withheld member with the next value.
    coming: Option<usize>,
    /// True once the value of the result's type was read to its end.
    is_typed: bool,
    /// The part of the chunk that passes and is not emitted yet.
    passed: Range<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WithholdMode {
    /// The bytes are emitted.
    #[default]
    Pass,
    /// They wait for a decision.
    Hold,
    /// They are between a withheld key and its value, or behind the last member.
    Drop,
    /// They are the value of this withheld member.
    Keep(usize),
}

impl WithheldMembers {
    /// The count of kept bytes.
    pub(super) fn held(&self) -> usize {
        self.kept.iter().flatten().map(Vec::len).sum()
    }

    /// The result's type, once it was read.
    pub(super) fn result_type(&self) -> Option<&[u8]> {
        self.kept[0].as_deref().filter(|_| self.is_typed)
    }

    /// Takes bytes of the result.
    pub(super) fn take(&mut self, chunk: &Bytes, range: Range<usize>, out: &mut Vec<Bytes>) {
        match self.mode {
            WithholdMode::Pass => {
                if self.passed.end != range.start {
                    self.flush(chunk, out);
                    self.passed.start = range.start;
                }
                self.passed.end = range.end;
            }
            WithholdMode::Drop => {}
            WithholdMode::Keep(at) => self.kept[at]
                .get_or_insert_default()
                .extend_from_slice(&chunk[range]),
            WithholdMode::Hold => {
                // A key too long to be a known one is decided before its end.
                if self.held.extend(&chunk[range]).is_break() {
                    self.emit_held(chunk, out);
                }
            }
        }
    }

    /// Takes an event of the result.
    pub(super) fn handle_event(
        &mut self,
        event: LexerEvent,
        lexer: &JsonLexer,
        chunk: &Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<(), ScanError> {
        match event {
            LexerEvent::Open => self.await_member(),
            LexerEvent::KeyStart => self.held.key_starts(),
            LexerEvent::KeyEnd => {
                let Some(key) = self.held.key() else {
                    return Ok(());
                };
                let Some(at) = WITHHELD.iter().position(|name| key.eq_str(name)) else {
                    self.emit_held(chunk, out);
                    return Ok(());
                };
                if self.kept[at].replace(Vec::new()).is_some() {
                    return Err(duplicate(lexer));
                }
                self.coming = Some(at);
                self.mode = WithholdMode::Drop;
            }
            LexerEvent::ValueStart(_) => {
                if let Some(at) = self.coming.take() {
                    self.mode = WithholdMode::Keep(at);
                }
            }
            LexerEvent::ValueEnd => {
                self.is_typed |= self.mode == WithholdMode::Keep(0);
                self.await_member();
            }
            LexerEvent::Closing => self.mode = WithholdMode::Drop,
        }
        Ok(())
    }

    /// Emits the passed part of the chunk. Call it at the chunk's end.
    pub(super) fn flush(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) {
        let passed = std::mem::take(&mut self.passed);
        if !passed.is_empty() {
            out.push(chunk.slice(passed));
        }
    }

    /// The withheld members and the closing brace.
    pub(super) fn rest(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.held() + 64);
        let mut is_first = !self.occupied;
        for (name, value) in WITHHELD.iter().zip(&self.kept) {
            let Some(value) = value else { continue };
            if !std::mem::take(&mut is_first) {
                out.put_u8(b',');
            }
            write::string(&mut out, name);
            out.put_u8(b':');
            out.put_slice(value);
        }
        out.put_u8(b'}');
        out.freeze()
    }

    fn await_member(&mut self) {
        self.held.clear();
        self.mode = WithholdMode::Hold;
    }

    /// Emits the held bytes: they belong to a member that passes.
    fn emit_held(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) {
        self.flush(chunk, out);
        let occupied = std::mem::replace(&mut self.occupied, true);
        out.push(Bytes::copy_from_slice(self.held.take(occupied)));
        self.mode = WithholdMode::Pass;
    }
}

/// The error of a key that comes a second time.
pub(super) fn duplicate(lexer: &JsonLexer) -> ScanError {
    ScanError {
        kind: ScanErrorKind::DuplicateKey,
        offset: lexer.offset(),
    }
}
