//! Facts about the machine.

use serde::Serialize;

/// One fact about the machine.
#[derive(Debug, Serialize)]
pub(crate) struct MachineFinding {
    pub(crate) grade: FindingGrade,
    pub text: String,
}

/// The severity of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FindingGrade {
    /// The fact is in order.
    Good,
    /// weir serves, with a restriction.
    Warning,
    /// weir or an upstream does not start, or no client can connect.
    Error,
}

/// Returns a fact of this grade.
pub(super) fn finding(grade: FindingGrade, text: impl Into<String>) -> MachineFinding {
    MachineFinding {
        grade,
        text: text.into(),
    }
}
