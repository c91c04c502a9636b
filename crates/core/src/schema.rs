//! Validation of tool arguments and structured results against the tool's own JSON Schemas.

/// What weir does with a value that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Not looked at.
    Off,
    /// Counted and logged; passes.
    Warn,
    /// Refused.
    Enforce,
}

/// Which checks are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Arguments against `inputSchema`, before the call goes out.
    pub input: Check,
    /// `structuredContent` against `outputSchema`, before the result goes back.
    pub output: Check,
}

impl Default for Validation {
    fn default() -> Self {
        Self { input: Check::Enforce, output: Check::Warn }
    }
}
