//! The streaming rewriter of one JSON object.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::json_lexer::{JsonLexer, LexerEvent};
use crate::scan::json_limits::JsonLimits;
use crate::scan::scan_error::{ScanError, ScanErrorKind};
use crate::splice::ByteSink;
use crate::splice::object_edits::{MemberAction, ObjectEdits};
use crate::splice::splice_output::{HeldMember, SpliceOutput};
use crate::write;

/// The most bytes of an observed value that are kept.
const OBSERVED_MAX: usize = 256;

/// The reasons to refuse an object. The caller discards the bytes emitted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// Not JSON, or beyond the limits.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// JSON, but not an object.
    #[error("the value is not a JSON object")]
    NotAnObject,
}

/// Values of the members that [`ObjectEdits::observe`] named, as far as they were seen.
#[derive(Clone, Debug, Default)]
pub struct ObservedMembers(Vec<(&'static str, Vec<u8>)>);

impl ObservedMembers {
    /// Reports if the member was present, with any type.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(seen, _)| *seen == name)
    }

    /// Records a member with its value; returns no value if it was present before.
    pub(super) fn record(&mut self, name: &'static str, value: &[u8]) -> Option<()> {
        if self.contains(name) {
            return None;
        }
        let is_scalar = !matches!(value.first(), Some(b'{' | b'['));
        let kept = if is_scalar {
            &value[..value.len().min(OBSERVED_MAX)]
        } else {
            &[]
        };
        self.0.push((name, kept.to_vec()));
        Some(())
    }

    /// The JSON text of an observed scalar; at most its first 256 bytes. Absent for objects and
    /// arrays.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.0.iter().find(|(seen, _)| *seen == name)?;
        (!value.is_empty()).then_some(value)
    }
}

/// The treatment of the bytes that the lexer consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RewriteMode {
    /// They are emitted.
    Pass,
    /// They wait for a decision: white space, comma and key before a member's value.
    Hold,
    /// They are dropped.
    Drop,
}

/// The action for the value of the current top-level member.
#[derive(Clone, Debug)]
enum ValuePlan {
    Keep,
    Replace(Bytes),
    Meta,
    /// The member is still held: its first byte decides.
    Object,
    /// The value is held until its end, and replaced if it is not valid.
    Checked(ValueCheck),
}

/// The check of a scalar, and the value in place of an invalid one.
#[derive(Clone, Debug)]
struct ValueCheck {
    is_valid: fn(&[u8]) -> bool,
    otherwise: Bytes,
    held: Vec<u8>,
}

/// Edits one JSON object from chunks of bytes. The input must be UTF-8; this is not checked here.
///
/// Holds at most a key and a little white space, for any chunks. Duplicate top-level keys that an
/// edit or an observation names are refused, so that an observer never sees another value than the
/// peer.
#[derive(Debug)]
pub struct ObjectRewriter {
    lexer: JsonLexer,
    edits: ObjectEdits,
    mode: RewriteMode,
    plan: ValuePlan,
    held: HeldMember,
    /// True if a member was emitted at the top level, and in `_meta`, so that the next one there
    /// needs a comma.
    occupied: [bool; 2],
    met: Vec<bool>,
    meta_met: bool,
    /// The key of `_meta` with a value that is known only while the object passes.
    late: Option<(&'static str, Bytes)>,
    /// True if the closing brace of `_meta` is held: the late key goes before it if no further
    /// member follows.
    meta_held: bool,
    observing: Option<&'static str>,
    capturing: bool,
    observed: ObservedMembers,
    /// The check of the current value, if it is held.
    checking: Option<ValueCheck>,
}

impl ObjectRewriter {
    /// A rewriter for objects within [`JsonLimits::upstream`].
    #[must_use]
    pub fn new(edits: ObjectEdits) -> Self {
        Self::with_limits(edits, JsonLimits::upstream())
    }

    /// A rewriter for objects within `limits`.
    #[must_use]
    pub(crate) fn with_limits(edits: ObjectEdits, limits: JsonLimits) -> Self {
        let met = vec![false; edits.members.len()];
        Self {
            lexer: JsonLexer::new(limits, 1),
            edits,
            mode: RewriteMode::Pass,
            plan: ValuePlan::Keep,
            held: HeldMember::default(),
            occupied: [false; 2],
            met,
            meta_met: false,
            late: None,
            meta_held: false,
            observing: None,
            capturing: false,
            observed: ObservedMembers::default(),
            checking: None,
        }
    }

    /// Adds a key to `_meta` with a value that depends on the members that pass. The last value
    /// given counts.
    ///
    /// It is written at the end of the object: into the `_meta` that ends there, or into a new one
    /// if the object has no `_meta`. It is left out if `_meta` is not the last member, because the
    /// value may still change then; behind a [`ReplySplitter`](crate::splitter::ReplySplitter)
    /// `_meta` always is the last. The key must be one that the edits take out
    /// ([`MetaEdits::drop_owned`](super::MetaEdits::drop_owned)), or it occurs twice.
    pub fn add_late_meta(&mut self, key: &'static str, value: Bytes) {
        self.late = Some((key, value));
    }

    /// Takes the next chunk and emits the decided bytes.
    ///
    /// # Errors
    /// The bytes so far are not the beginning of one JSON object within the limits.
    pub fn feed(&mut self, chunk: &Bytes, out: &mut impl ByteSink) -> Result<(), SpliceError> {
        let mut output = SpliceOutput::new(chunk, out);
        let mut pos = 0;
        while pos < chunk.len() {
            let (consumed, event) = self.lexer.advance(&chunk[pos..])?;
            self.consume(pos..pos + consumed, &mut output);
            pos += consumed;
            if let Some(event) = event {
                self.handle_event(event, &mut output)?;
            }
        }
        output.flush();
        Ok(())
    }

    /// Ends the object and returns the observed values.
    ///
    /// # Errors
    /// The object is incomplete.
    pub fn finish(mut self) -> Result<ObservedMembers, SpliceError> {
        self.lexer.finish()?;
        Ok(self.observed)
    }

    /// The count of bytes that wait for a decision.
    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        self.held.len()
    }

    fn consume<S: ByteSink>(&mut self, range: Range<usize>, output: &mut SpliceOutput<'_, S>) {
        if self.capturing
            && let Some((_, value)) = self.observed.0.last_mut()
        {
            let room = OBSERVED_MAX - value.len();
            value.extend(output.chunk()[range.clone()].iter().take(room));
        }
        if let Some(check) = &mut self.checking {
            // One byte beyond the longest makes it invalid.
            let room = OBSERVED_MAX + 1 - check.held.len();
            check
                .held
                .extend(output.chunk()[range.clone()].iter().take(room));
        }
        match self.mode {
            RewriteMode::Pass => output.pass(range),
            RewriteMode::Drop => {}
            RewriteMode::Hold => {
                // A key too long to be a known one is decided before its end.
                if self.held.extend(&output.chunk()[range]).is_break() {
                    self.plan = ValuePlan::Keep;
                    self.keep(output);
                }
            }
        }
    }

    fn handle_event<S: ByteSink>(
        &mut self,
        event: LexerEvent,
        output: &mut SpliceOutput<'_, S>,
    ) -> Result<(), SpliceError> {
        let depth = self.lexer.depth();
        match event {
            LexerEvent::ValueStart(byte) if depth == 0 && byte != b'{' => {
                return Err(SpliceError::NotAnObject);
            }
            LexerEvent::ValueStart(byte) if depth == 1 => self.value_starts(byte, output),
            LexerEvent::Open => self.await_member(),
            LexerEvent::KeyStart => {
                if depth == 1 && std::mem::take(&mut self.meta_held) {
                    output.put(b"}");
                }
                self.held.key_starts();
            }
            LexerEvent::KeyEnd => self.key_ends(output)?,
            LexerEvent::ValueEnd => {
                if depth == 1 {
                    self.lexer.set_report(1);
                    self.capturing = false;
                    if let Some(check) = self.checking.take() {
                        let is_valid =
                            check.held.len() <= OBSERVED_MAX && (check.is_valid)(&check.held);
                        output.put(if is_valid {
                            &check.held
                        } else {
                            &check.otherwise
                        });
                    }
                }
                self.await_member();
                if depth == 0 {
                    self.mode = RewriteMode::Pass;
                }
            }
            LexerEvent::Closing => self.closing(depth as usize - 1, output),
            LexerEvent::ValueStart(_) => {}
        }
        Ok(())
    }

    /// Adds the missing members before the closing brace of the object (0) or of its `_meta` (1).
    fn closing<S: ByteSink>(&mut self, level: usize, output: &mut SpliceOutput<'_, S>) {
        if level == 0 && std::mem::take(&mut self.meta_held) {
            let late = self.late_meta();
            self.put_members(1, &late, output);
            output.put(b"}");
        }
        let added = if level == 0 {
            self.missing_members()
        } else {
            self.added_meta()
        };
        self.put_members(level, &added, output);
        self.mode = RewriteMode::Pass;
        if level == 1 && self.late.is_some() {
            self.meta_held = true;
            self.mode = RewriteMode::Drop;
        }
        output.put(self.held.take(true));
    }

    fn put_members<S: ByteSink>(
        &mut self,
        level: usize,
        members: &[u8],
        output: &mut SpliceOutput<'_, S>,
    ) {
        if !members.is_empty() {
            output.put(if std::mem::replace(&mut self.occupied[level], true) {
                b","
            } else {
                b""
            });
            output.put(members);
        }
    }

    fn await_member(&mut self) {
        self.held.clear();
        self.mode = RewriteMode::Hold;
    }

    fn key_ends<S: ByteSink>(
        &mut self,
        output: &mut SpliceOutput<'_, S>,
    ) -> Result<(), SpliceError> {
        self.plan = ValuePlan::Keep;
        let Some(key) = self.held.key() else {
            return Ok(());
        };
        if self.lexer.depth() == 2 {
            let drops = self.edits.meta.as_ref().is_some_and(|meta| meta.drops(key));
            self.keep_or_drop(drops, output);
            return Ok(());
        }
        let duplicate = SpliceError::Scan(ScanError {
            kind: ScanErrorKind::DuplicateKey,
            offset: self.lexer.offset(),
        });
        self.observing = self
            .edits
            .observe
            .iter()
            .copied()
            .find(|name| key.eq_str(name));
        if self
            .observing
            .is_some_and(|name| self.observed.contains(name))
        {
            return Err(duplicate);
        }
        if self.edits.meta.is_some() && key.eq_str("_meta") {
            if std::mem::replace(&mut self.meta_met, true) {
                return Err(duplicate);
            }
            self.plan = ValuePlan::Meta;
        }
        let mut drops = self.edits.drops_variant(&key);
        if let Some(index) = self
            .edits
            .members
            .iter()
            .position(|(name, _)| key.eq_str(name))
        {
            if std::mem::replace(&mut self.met[index], true) {
                return Err(duplicate);
            }
            match &self.edits.members[index].1 {
                MemberAction::Remove => drops = true,
                MemberAction::Replace(value) | MemberAction::Set(value) => {
                    self.plan = ValuePlan::Replace(value.clone())
                }
                MemberAction::Ensure(_) => {}
                MemberAction::EnsureValid(is_valid, value) => {
                    self.plan = ValuePlan::Checked(ValueCheck {
                        is_valid: *is_valid,
                        otherwise: value.clone(),
                        held: Vec::new(),
                    });
                }
                MemberAction::OnlyObject => {
                    self.plan = ValuePlan::Object;
                    return Ok(());
                }
            }
        }
        self.keep_or_drop(drops, output);
        Ok(())
    }

    fn keep_or_drop<S: ByteSink>(&mut self, drops: bool, output: &mut SpliceOutput<'_, S>) {
        if drops {
            self.held.clear();
            self.mode = RewriteMode::Drop;
        } else {
            self.keep(output);
        }
    }

    fn keep<S: ByteSink>(&mut self, output: &mut SpliceOutput<'_, S>) {
        let occupied = std::mem::replace(&mut self.occupied[self.lexer.depth() as usize - 1], true);
        output.put(self.held.take(occupied));
        self.mode = RewriteMode::Pass;
    }

    fn value_starts<S: ByteSink>(&mut self, byte: u8, output: &mut SpliceOutput<'_, S>) {
        if let Some(name) = self.observing.take() {
            self.capturing = !matches!(byte, b'{' | b'[');
            self.observed.0.push((name, Vec::new()));
        }
        match std::mem::replace(&mut self.plan, ValuePlan::Keep) {
            ValuePlan::Keep => {}
            ValuePlan::Object => self.keep_or_drop(byte != b'{', output),
            ValuePlan::Replace(value) => {
                output.put(&value);
                self.mode = RewriteMode::Drop;
            }
            ValuePlan::Checked(check) => {
                self.checking = Some(check);
                self.mode = RewriteMode::Drop;
            }
            ValuePlan::Meta if byte == b'{' => {
                self.occupied[1] = false;
                self.lexer.set_report(2);
            }
            ValuePlan::Meta => {
                let added = self.added_meta();
                if !added.is_empty() {
                    output.put(&braced(&added));
                    self.mode = RewriteMode::Drop;
                }
            }
        }
    }

    /// The members to add before the closing brace, with commas between them.
    fn missing_members(&self) -> BytesMut {
        let missing = self
            .edits
            .members
            .iter()
            .zip(&self.met)
            .filter(|(_, met)| !**met);
        let values = missing.filter_map(|((name, action), _)| match action {
            MemberAction::Set(value)
            | MemberAction::Ensure(value)
            | MemberAction::EnsureValid(_, value) => Some((name.as_ref(), value.clone())),
            MemberAction::Remove | MemberAction::Replace(_) | MemberAction::OnlyObject => None,
        });
        let late = self.late.iter().map(|(name, value)| (*name, value.clone()));
        let meta = joined(self.meta_additions().chain(late));
        let meta = Some(meta).filter(|added| !self.meta_met && !added.is_empty());
        joined(values.chain(meta.map(|added| ("_meta", braced(&added)))))
    }

    /// The late key of `_meta` as a member, if there is one.
    fn late_meta(&self) -> BytesMut {
        joined(self.late.iter().map(|(name, value)| (*name, value.clone())))
    }

    /// The members to add to `_meta`, with commas between them.
    fn added_meta(&self) -> BytesMut {
        joined(self.meta_additions())
    }

    fn meta_additions(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let added = self.edits.meta.iter().flat_map(|meta| &meta.add);
        added.map(|(name, value)| (name.as_ref(), value.clone()))
    }
}

fn joined<'a>(members: impl Iterator<Item = (&'a str, Bytes)>) -> BytesMut {
    let mut out = BytesMut::new();
    for (name, value) in members {
        if !out.is_empty() {
            out.put_u8(b',');
        }
        write::string(&mut out, name);
        out.put_u8(b':');
        out.put_slice(&value);
    }
    out
}

fn braced(members: &[u8]) -> Bytes {
    [b"{", members, b"}"].concat().into()
}
