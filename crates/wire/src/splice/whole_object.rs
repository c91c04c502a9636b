//! Editing a whole object at once.

use bytes::{Bytes, BytesMut};

use crate::scan;
use crate::splice::object_edits::{MemberAction, ObjectEdits};
use crate::splice::rewriter::{ObjectRewriter, ObservedMembers, SpliceError};
use crate::write::{self, ObjectWriter};

impl ObjectEdits {
    /// Edits a whole object at once.
    ///
    /// # Errors
    /// As [`ObjectRewriter::feed`].
    pub fn apply(self, object: &Bytes) -> Result<(Bytes, ObservedMembers), SpliceError> {
        let mut out = BytesMut::with_capacity(object.len() + 256);
        let mut rewriter = ObjectRewriter::new(self);
        rewriter.feed(object, &mut out)?;
        Ok((out.freeze(), rewriter.finish()?))
    }

    /// Edits a whole object that has been checked ([`scan::check`]) already. Usually no present
    /// member changes, and then only the keys are read.
    ///
    /// # Errors
    /// As [`ObjectRewriter::feed`].
    pub fn apply_checked(&self, object: &Bytes) -> Result<(Bytes, ObservedMembers), SpliceError> {
        match self.try_append(object) {
            Some(done) => Ok(done),
            None => self.clone().apply(object),
        }
    }

    /// Edits like [`ObjectEdits::apply_checked`]; an object that cannot be edited stays as it is.
    #[must_use]
    pub fn apply_or_keep(&self, object: &Bytes) -> Bytes {
        self.apply_checked(object)
            .map_or_else(|_| object.clone(), |(edited, _)| edited)
    }

    /// Returns the object with its missing members added, if no present member changes.
    fn try_append(&self, object: &Bytes) -> Option<(Bytes, ObservedMembers)> {
        let open = object.iter().position(|byte| *byte == b'{')?;
        if !scan::is_object(object) {
            return None;
        }
        let (mut met, mut end, mut observed) = (0_u64, open + 1, ObservedMembers::default());
        for member in scan::members(object) {
            end = member.value.end;
            if let Some(name) = self
                .observe
                .iter()
                .copied()
                .find(|name| member.key.eq_str(name))
            {
                observed.record(name, &object[member.value.clone()])?;
            }
            if self.meta.is_some() && member.key.eq_str("_meta") || self.drops_variant(&member.key)
            {
                return None;
            }
            if let Some(nth) = self
                .members
                .iter()
                .position(|(name, _)| member.key.eq_str(name))
            {
                let bit = 1_u64.checked_shl(u32::try_from(nth).ok()?)?;
                let stays = match &self.members[nth].1 {
                    MemberAction::Ensure(_) => true,
                    MemberAction::EnsureValid(is_valid, _) => {
                        is_valid(&object[member.value.clone()])
                    }
                    MemberAction::Set(value) => object[member.value.clone()] == value[..],
                    MemberAction::OnlyObject => scan::is_object(&object[member.value.clone()]),
                    MemberAction::Remove | MemberAction::Replace(_) => false,
                };
                if !stays || met & bit != 0 {
                    return None;
                }
                met |= bit;
            }
        }
        let lacks = |nth: usize| {
            u32::try_from(nth).is_ok_and(|nth| met.checked_shr(nth).unwrap_or(0) & 1 == 0)
        };
        let mut out = MemberAppender {
            object,
            end,
            out: None,
        };
        for (nth, (name, action)) in self.members.iter().enumerate() {
            if let MemberAction::Set(value)
            | MemberAction::Ensure(value)
            | MemberAction::EnsureValid(_, value) = action
                && lacks(nth)
            {
                out.member(name).extend_from_slice(value);
            }
        }
        if let Some(meta) = self.meta.as_ref().filter(|meta| !meta.add.is_empty()) {
            let mut object = ObjectWriter::new(out.member("_meta"));
            for (name, value) in &meta.add {
                object.raw(name, value);
            }
            object.end();
        }
        Some((out.finish(), observed))
    }
}

/// A writer of members behind the last one of an object. It copies the object only if there are
/// any.
struct MemberAppender<'a> {
    object: &'a Bytes,
    /// The offset behind the last member's value, or behind the opening brace.
    end: usize,
    out: Option<BytesMut>,
}

impl MemberAppender<'_> {
    /// Returns the buffer for the next member's value.
    fn member(&mut self, name: &str) -> &mut BytesMut {
        let has_members = self.out.is_some() || self.object[..self.end].last() != Some(&b'{');
        let out = self.out.get_or_insert_with(|| {
            let mut out = BytesMut::with_capacity(self.object.len() + 256);
            out.extend_from_slice(&self.object[..self.end]);
            out
        });
        if has_members {
            out.extend_from_slice(b",");
        }
        write::string(out, name);
        out.extend_from_slice(b":");
        out
    }

    fn finish(self) -> Bytes {
        let Some(mut out) = self.out else {
            return self.object.clone();
        };
        out.extend_from_slice(&self.object[self.end..]);
        out.freeze()
    }
}
