//! What to change.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::rewriter::{Observed, Rewriter, SpliceError};
use crate::meta;
use crate::scan::Key;

/// Name of a member.
pub(super) type Name = Cow<'static, str>;

/// What happens to one top-level member.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Remove,
    Replace(Bytes),
    Set(Bytes),
    Ensure(Bytes),
}

/// Changes of one JSON object. Values given must be JSON already. Naming a member twice: the first counts.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    pub(super) members: Vec<(Name, Action)>,
    pub(super) meta: Option<MetaEdits>,
    pub(super) observe: Vec<&'static str>,
}

impl Edits {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a member out.
    #[must_use]
    pub fn remove(self, name: impl Into<Name>) -> Self {
        self.with(name, Action::Remove)
    }

    /// Gives a member this value where it is there; does not add it.
    #[must_use]
    pub fn replace(self, name: impl Into<Name>, value: impl Into<Bytes>) -> Self {
        self.with(name, Action::Replace(value.into()))
    }

    /// Gives a member this value, whether it is there or not.
    #[must_use]
    pub fn set(self, name: impl Into<Name>, value: impl Into<Bytes>) -> Self {
        self.with(name, Action::Set(value.into()))
    }

    /// Adds a member with this value where it is missing.
    #[must_use]
    pub fn ensure(self, name: impl Into<Name>, value: impl Into<Bytes>) -> Self {
        self.with(name, Action::Ensure(value.into()))
    }

    /// Edits `_meta`.
    #[must_use]
    pub fn meta(self, edits: MetaEdits) -> Self {
        Self { meta: Some(edits), ..self }
    }

    /// Reports the value of a top-level scalar, up to 256 bytes of it, as it came.
    #[must_use]
    pub fn observe(mut self, name: &'static str) -> Self {
        self.observe.push(name);
        self
    }

    /// Whether nothing would change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.meta.is_none()
    }

    /// Edits a whole object at once.
    ///
    /// # Errors
    /// As [`Rewriter::feed`].
    pub fn apply(self, object: &Bytes) -> Result<(Bytes, Observed), SpliceError> {
        let mut out = BytesMut::with_capacity(object.len() + 256);
        let mut rewriter = Rewriter::new(self);
        rewriter.feed(object, &mut out)?;
        Ok((out.freeze(), rewriter.finish()?))
    }

    fn with(mut self, name: impl Into<Name>, action: Action) -> Self {
        self.members.push((name.into(), action));
        self
    }
}

/// Changes inside `_meta`.
#[derive(Clone, Debug, Default)]
pub struct MetaEdits {
    pub(super) drop_owned: bool,
    pub(super) drop: Vec<Name>,
    pub(super) add: Vec<(Name, Bytes)>,
}

impl MetaEdits {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes out every key that [`meta::is_owned_by_weir`].
    #[must_use]
    pub fn drop_owned(self) -> Self {
        Self { drop_owned: true, ..self }
    }

    /// Takes out this key.
    #[must_use]
    pub fn drop(mut self, key: impl Into<Name>) -> Self {
        self.drop.push(key.into());
        self
    }

    /// Adds a key with a JSON value, in place of any that is there; creates `_meta` where it is missing or not an object.
    #[must_use]
    pub fn add(mut self, key: impl Into<Name>, value: impl Into<Bytes>) -> Self {
        self.add.push((key.into(), value.into()));
        self
    }

    /// Whether a key that is there has to go.
    pub(super) fn drops(&self, key: Key<'_>) -> bool {
        self.drop_owned && meta::is_owned_by_weir(&key.decode())
            || self.drop.iter().any(|name| key.eq_str(name))
            || self.add.iter().any(|(name, _)| key.eq_str(name))
    }
}
