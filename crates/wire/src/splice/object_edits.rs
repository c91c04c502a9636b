//! The changes to one JSON object.

use std::borrow::Cow;

use bytes::Bytes;

use crate::meta;
use crate::scan::json_members::MemberKey;

/// The name of a member.
pub(super) type EditName = Cow<'static, str>;

/// The change of one top-level member.
#[derive(Clone, Debug)]
pub(super) enum MemberAction {
    Remove,
    Replace(Bytes),
    Set(Bytes),
    Ensure(Bytes),
    EnsureValid(fn(&[u8]) -> bool, Bytes),
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

    /// Sets the value of a member that is missing, or whose value is not valid. The longest valid
    /// value has 256 bytes, and is no object and no array.
    #[must_use]
    pub fn ensure_valid(
        self,
        name: impl Into<EditName>,
        is_valid: fn(&[u8]) -> bool,
        value: impl Into<Bytes>,
    ) -> Self {
        self.with(name, MemberAction::EnsureValid(is_valid, value.into()))
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

    fn with(mut self, name: impl Into<EditName>, action: MemberAction) -> Self {
        self.members.push((name.into(), action));
        self
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
