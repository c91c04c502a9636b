//! Capability classes: the requests that a client accepts, as a small bit set.
//!
//! A server may list other tools, and answer differently, for a client that can elicit than for one
//! that cannot. So cached lists and pooled sessions are keyed by the class, cut to the members that
//! weir carries on that way.

use std::fmt;

/// A set over sampling, sampling.tools, elicitation.form, elicitation.url, roots, tasks, the known
/// extensions and sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CapabilityClass(u16);

impl CapabilityClass {
    /// The empty set: the base class, in which every upstream is always watched.
    pub const BASE: Self = Self(0);
    /// `sampling`.
    pub const SAMPLING: Self = Self(1);
    /// `sampling.tools`.
    pub const SAMPLING_TOOLS: Self = Self(1 << 1);
    /// `elicitation` or `elicitation.form`.
    pub const ELICITATION_FORM: Self = Self(1 << 2);
    /// `elicitation.url`.
    pub const ELICITATION_URL: Self = Self(1 << 3);
    /// `roots`.
    pub const ROOTS: Self = Self(1 << 4);
    /// The tasks extension, `io.modelcontextprotocol/tasks`.
    pub const TASKS: Self = Self(1 << 5);
    /// The apps extension, `io.modelcontextprotocol/ui`.
    pub const UI: Self = Self(1 << 6);
    /// The client's revision has sessions, in which a server may ask while a call runs. It is
    /// carried to servers that speak both revisions: such a client is served with a session, and
    /// lists the items that the server lists there.
    pub const SESSIONS: Self = Self(1 << 7);

    const NAMED: [(Self, &'static str); 8] = [
        (Self::SAMPLING, "sampling"),
        (Self::SAMPLING_TOOLS, "sampling.tools"),
        (Self::ELICITATION_FORM, "elicitation.form"),
        (Self::ELICITATION_URL, "elicitation.url"),
        (Self::ROOTS, "roots"),
        (Self::TASKS, "tasks"),
        (Self::UI, "ui"),
        (Self::SESSIONS, "sessions"),
    ];

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members that both sets have: a client's class cut to the members that weir carries.
    #[must_use]
    pub const fn cut(self, carried: Self) -> Self {
        Self(self.0 & carried.0)
    }

    /// The members that only this set has.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if every member of `other` is in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as bits, for sealed cursors and records.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The opposite of [`Self::bits`]; unknown bits are dropped.
    #[must_use]
    pub fn from_bits(bits: u16) -> Self {
        Self(Self::NAMED.iter().fold(0, |known, (one, _)| known | one.0) & bits)
    }
}

impl fmt::Debug for CapabilityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CapabilityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::BASE {
            return f.write_str("base");
        }
        let mut first = true;
        for (one, name) in Self::NAMED {
            if self.has(one) {
                if !first {
                    f.write_str("+")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}
