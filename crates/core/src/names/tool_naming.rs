//! Exposed tool names: a pure, injective function of (upstream, native name) that no other upstream
//! changes.
//!
//! `u__t` if that fits; else a slug of it, cut, and `_` with 8 base32 characters of SHA-256(u, t).
//! Source: specification, server/tools ("aggregators should disambiguate by a server identifier");
//! names as large language model hosts accept them.

use std::borrow::Cow;

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

use crate::names::UpstreamId;

/// The characters an exposed name may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameAlphabet {
    /// `A-Z a-z 0-9 _ -`: accepted by every host.
    #[default]
    Strict,
    /// The same and `.`: the widest that the tools specification recommends.
    Dotted,
}

impl NameAlphabet {
    fn has(self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric()
            || byte == b'_'
            || byte == b'-'
            || (self == Self::Dotted && byte == b'.')
    }
}

/// The naming rule for the tools of an aggregating endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolNaming {
    separator: Box<str>,
    maximum: usize,
    alphabet: NameAlphabet,
}

/// The error of a naming rule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NamingError {
    /// The separator is empty, too long, or has a character outside the alphabet.
    #[error("separator `{0}` must be 1 to 4 characters of the name alphabet")]
    Separator(String),
    /// The maximum is neither 64 nor 128.
    #[error("maximum name length {0} must be 64 or 128")]
    Maximum(usize),
}

const HASH_LENGTH: usize = 8;

impl Default for ToolNaming {
    fn default() -> Self {
        Self {
            separator: "__".into(),
            maximum: 64,
            alphabet: NameAlphabet::Strict,
        }
    }
}

impl ToolNaming {
    /// Checks a naming rule.
    ///
    /// # Errors
    ///
    /// [`NamingError`] names the bad part.
    pub fn new(
        separator: &str,
        maximum: usize,
        alphabet: NameAlphabet,
    ) -> Result<Self, NamingError> {
        if separator.is_empty()
            || separator.len() > 4
            || !separator.bytes().all(|b| alphabet.has(b))
        {
            return Err(NamingError::Separator(separator.to_owned()));
        }
        if maximum != 64 && maximum != 128 {
            return Err(NamingError::Maximum(maximum));
        }
        Ok(Self {
            separator: separator.into(),
            maximum,
            alphabet,
        })
    }

    /// The exposed name of tool `native` of `upstream`.
    ///
    /// Deterministic on every replica, and independent of other upstreams' tools. Two different
    /// pairs get the same name only if 40 bits of their SHA-256 agree, or if a native name is made
    /// to look like another's cut form: the catalog detects and reports that.
    #[must_use]
    pub fn expose(&self, upstream: &UpstreamId, native: &str) -> String {
        let plain = format!("{upstream}{}{native}", self.separator);
        // An id may end in `-`, so a separator of `-` could be read in two places: those names take
        // the hashed form.
        let one_reading = plain.find(&*self.separator) == Some(upstream.as_str().len());
        if !native.is_empty()
            && plain.len() <= self.maximum
            && one_reading
            && plain.bytes().all(|b| self.alphabet.has(b))
        {
            return plain;
        }
        let mut name: String = plain
            .chars()
            .map(|c| {
                if u8::try_from(c).is_ok_and(|b| b.is_ascii() && self.alphabet.has(b)) {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        name.truncate(self.maximum - HASH_LENGTH - 1);
        name.push('_');
        name.push_str(&digest(upstream, native));
        name
    }

    /// The beginnings of a name that the separator follows: of an exposed name, one of them is the id
    /// of its upstream, unless the id is too long for the name.
    pub fn possible_upstreams<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let splits = name.char_indices().map(|(at, _)| name.split_at(at));
        splits
            .filter(|(_, rest)| rest.starts_with(&*self.separator))
            .map(|(id, _)| id)
    }

    /// The rest of a name behind the prefix of an upstream: the native name, unless the exposed name
    /// was cut or has replaced characters.
    #[must_use]
    pub fn native_part<'a>(&self, upstream: &UpstreamId, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(upstream.as_str())?
            .strip_prefix(&*self.separator)
    }

    /// True if `name` may be used without a prefix on an endpoint with `prefix: none`.
    #[must_use]
    pub fn accepts_bare(&self, name: &str) -> bool {
        !name.is_empty() && name.len() <= self.maximum && name.bytes().all(|b| self.alphabet.has(b))
    }

    /// The bare name if it is legal, else the exposed one.
    #[must_use]
    pub fn bare<'a>(&self, upstream: &UpstreamId, native: &'a str) -> Cow<'a, str> {
        if self.accepts_bare(native) {
            native.into()
        } else {
            self.expose(upstream, native).into()
        }
    }
}

fn digest(upstream: &UpstreamId, native: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(upstream.as_str().as_bytes());
    // NUL cannot be in an upstream id, so the pair has one encoding.
    hash.update([0]);
    hash.update(native.as_bytes());
    let full = hash.finalize();
    let mut text = BASE32_NOPAD.encode(&full[..5]);
    text.make_ascii_lowercase();
    debug_assert_eq!(text.len(), HASH_LENGTH);
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> UpstreamId {
        UpstreamId::new(text).unwrap()
    }

    // Proves R111.
    #[test]
    fn plain_names_are_prefixed_by_the_configured_id() {
        let naming = ToolNaming::default();
        assert_eq!(naming.expose(&id("files"), "read_file"), "files__read_file");
        assert_eq!(naming.expose(&id("files"), "Read_File"), "files__Read_File");
    }

    // Proves R112.
    #[test]
    fn long_and_odd_names_are_slugged_and_hashed() {
        let naming = ToolNaming::default();
        let long = naming.expose(&id("files"), &"x".repeat(200));
        assert_eq!(long.len(), 64);
        let odd = naming.expose(&id("files"), "größe/lesen");
        assert!(naming.accepts_bare(&odd), "{odd}");
        assert_ne!(
            naming.expose(&id("files"), "a/b"),
            naming.expose(&id("files"), "a:b")
        );
    }

    #[test]
    fn rules_are_checked() {
        assert_eq!(
            ToolNaming::new("", 64, NameAlphabet::Strict),
            Err(NamingError::Separator(String::new()))
        );
        assert_eq!(
            ToolNaming::new(".", 64, NameAlphabet::Strict),
            Err(NamingError::Separator(".".into()))
        );
        assert!(ToolNaming::new(".", 128, NameAlphabet::Dotted).is_ok());
        assert_eq!(
            ToolNaming::new("__", 99, NameAlphabet::Strict),
            Err(NamingError::Maximum(99))
        );
    }

    proptest! {
        // Proves R111.
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn naming_is_injective_and_legal(
            (u1, u2) in ("[a-z][a-z0-9-]{0,5}", "[a-z][a-z0-9-]{0,5}"),
            (t1, t2) in ("[a-c_\\-/é]{0,70}", "[a-c_\\-/é]{0,70}"),
            separator in prop::sample::select(vec!["__", "-", "_"]),
        ) {
            let naming = ToolNaming::new(separator, 64, NameAlphabet::Strict).unwrap();
            let (a, b) = (naming.expose(&id(&u1), &t1), naming.expose(&id(&u2), &t2));
            prop_assert!(naming.accepts_bare(&a));
            prop_assert!(naming.possible_upstreams(&a).any(|id| id == u1));
            prop_assert_eq!(a == b, (u1, t1) == (u2, t2));
        }
    }
}
