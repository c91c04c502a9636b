//! The operator's choice of checks.

/// The action on a value that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckMode {
    /// Not checked.
    Off,
    /// Counted and logged; passes.
    Warn,
    /// Refused if the schema can be used. A tool with an unusable schema is flagged and stays
    /// unchecked.
    EnforceUsable,
    /// Refused, and so is every call of a tool whose schema cannot be used.
    Enforce,
}

impl CheckMode {
    /// True if values that do not match are refused.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Self::EnforceUsable | Self::Enforce)
    }
}

/// The checks of arguments and of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Arguments against `inputSchema`, before the call goes out.
    pub input: CheckMode,
    /// `structuredContent` against `outputSchema`, before the result goes back.
    pub output: CheckMode,
}

impl Default for Validation {
    fn default() -> Self {
        Self {
            input: CheckMode::EnforceUsable,
            output: CheckMode::Warn,
        }
    }
}
