//! The states of lists, and the reasons why a list is not whole and fresh.

/// The state of an upstream's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListState {
    /// Not known yet.
    Pending,
    /// As the upstream last listed it, and weir would learn of a change.
    Fresh,
    /// As the upstream listed it earlier; it cannot be asked now.
    Stale,
    /// The list is not known any more.
    Down,
}

/// The reason why an upstream's part of a list is not whole and fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteReason {
    /// Its first walk has not ended.
    Pending,
    /// No item of it is shown.
    Down,
    /// Its last good items are shown.
    Stale,
    /// A guard cut its list.
    Truncated,
    /// An operator took it out.
    Disabled,
}

impl ListState {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Down => "down",
        }
    }

    /// True if the list was read, and its items are kept.
    #[must_use]
    pub const fn was_read(self) -> bool {
        matches!(self, Self::Fresh | Self::Stale)
    }

    /// True if the list cannot be read now.
    #[must_use]
    pub const fn is_unreadable(self) -> bool {
        matches!(self, Self::Stale | Self::Down)
    }
}

impl IncompleteReason {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Down => "down",
            Self::Stale => "stale",
            Self::Truncated => "truncated",
            Self::Disabled => "disabled",
        }
    }

    /// True if no item of the upstream is shown, so that an unknown name may be one of its items.
    #[must_use]
    pub const fn hides_items(self) -> bool {
        matches!(self, Self::Pending | Self::Down | Self::Disabled)
    }
}
