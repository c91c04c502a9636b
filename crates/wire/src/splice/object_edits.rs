//! The changes to one JSON object.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::rewriter::{ObjectRewriter, ObservedMembers, SpliceError};
use crate::meta;
use crate::scan::{self, MemberKey};
use crate::write::{self, ObjectWriter};

/// The name of a member.
pub(super) type EditName = Cow<'static, str>;

/// The change of one top-level member.
#[derive(Clone, Debug)]
pub(super) enum MemberAction {
    Remove,
    Replace(Bytes),
    Set(Bytes),
    Ensure(Bytes),
    OnlyObject,
}

/// Changes of one JSON object. Values given must be JSON already. Naming a member twice: the first
/// counts.
#[derive(Clone, Debug, Default)]
pub struct ObjectEdits {
    pub(super) members: Vec<(EditName, MemberAction)>,
    pub(super) meta: Option<MetaEdits>,
    pub(super) observe: Vec<&'static str>,
    pub(super) variants: &'static [&'static str],
}

impl ObjectEdits {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes a member.
    #[must_use]
    pub fn remove(self, name: impl Into<EditName>) -> Self {
        self.with(name, MemberAction::Remove)
    }

    /// Replaces the value of a member if it is present; does not add it.
    #[must_use]
    pub fn replace(self, name: impl Into<EditName>, value: impl Into<Bytes>) -> Self {
        self.with(name, MemberAction::Replace(value.into()))
    }

    /// Sets the value of a member, present or not.
    #[must_use]
    pub fn set(self, name: impl Into<EditName>, value: impl Into<Bytes>) -> Self {
        self.with(name, MemberAction::Set(value.into()))
    }

    /// Adds a member with this value if it is missing.
    #[must_use]
    pub fn ensure(self, name: impl Into<EditName>, value: impl Into<Bytes>) -> Self {
        self.with(name, MemberAction::Ensure(value.into()))
    }

    /// Removes a member unless its value is an object.
    #[must_use]
    pub fn only_object(self, name: impl Into<EditName>) -> Self {
        self.with(name, MemberAction::OnlyObject)
    }

    /// Edits `_meta`.
    #[must_use]
    pub fn meta(self, edits: MetaEdits) -> Self {
        Self {
            meta: Some(edits),
            ..self
        }
    }

    /// Adds a key to `_meta`, beside the edits that were given before ([`MetaEdits::add`]).
    #[must_use]
    pub fn add_meta(mut self, key: impl Into<EditName>, value: impl Into<Bytes>) -> Self {
        self.meta = Some(self.meta.take().unwrap_or_default().add(key, value));
        self
    }

    /// Reports the value of a top-level scalar, up to 256 bytes of it, as it came.
    #[must_use]
    pub fn observe(mut self, name: &'static str) -> Self {
        self.observe.push(name);
        self
    }

    /// Removes every member that equals one of these names under simple case folding
    /// ([`crate::case_folding`]) without being one of them: a parser without regard to case would
    /// take it for the edited member.
    #[must_use]
    pub fn without_variants_of(self, names: &'static [&'static str]) -> Self {
        Self {
            variants: names,
            ..self
        }
    }

    /// Reports if there is no change to make.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.meta.is_none() && self.variants.is_empty()
    }

    /// Reports if a top-level member of this name must be removed as a variant of another one.
    pub(super) fn drops_variant(&self, key: &MemberKey<'_>) -> bool {
        !self.variants.is_empty() && key.case_variant_of(self.variants).is_some()
    }

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
    pub fn apply_checked(self, object: &Bytes) -> Result<(Bytes, ObservedMembers), SpliceError> {
        match self.try_append(object) {
            Some(done) => Ok(done),
            None => self.apply(object),
        }
    }

    /// Edits like [`ObjectEdits::apply_checked`]; an object that cannot be edited stays as it is.
    #[must_use]
    pub fn apply_or_keep(self, object: &Bytes) -> Bytes {
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
            if let MemberAction::Set(value) | MemberAction::Ensure(value) = action
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

    fn with(mut self, name: impl Into<EditName>, action: MemberAction) -> Self {
        self.members.push((name.into(), action));
        self
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

/// The changes inside `_meta`.
#[derive(Clone, Debug, Default)]
pub struct MetaEdits {
    pub(super) drop_owned: bool,
    pub(super) drop: Vec<EditName>,
    pub(super) add: Vec<(EditName, Bytes)>,
}

impl MetaEdits {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes every key that [`meta::is_owned_by_weir`].
    #[must_use]
    pub fn drop_owned(self) -> Self {
        Self {
            drop_owned: true,
            ..self
        }
    }

    /// Removes this key.
    #[must_use]
    pub fn drop(mut self, key: impl Into<EditName>) -> Self {
        self.drop.push(key.into());
        self
    }

    /// Adds a key with a JSON value and replaces a present one; creates `_meta` if it is missing or
    /// not an object.
    #[must_use]
    pub fn add(mut self, key: impl Into<EditName>, value: impl Into<Bytes>) -> Self {
        self.add.push((key.into(), value.into()));
        self
    }

    /// Reports if a present key must be removed.
    pub(super) fn drops(&self, key: MemberKey<'_>) -> bool {
        self.drop_owned && meta::is_owned_by_weir(&key.decode())
            || self.drop.iter().any(|name| key.eq_str(name))
            || self.add.iter().any(|(name, _)| key.eq_str(name))
    }
}
