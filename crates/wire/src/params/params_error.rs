//! The refusal of a member of `params`.

/// A member of the wrong type or spelling (-32602).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{member}` must be {expected}")]
pub struct ParamsError {
    /// The member, with its path inside `params`.
    pub member: &'static str,
    /// The expected type or form.
    pub expected: &'static str,
}

impl ParamsError {
    /// The error for a member's name that differs from this one in case alone. A server without
    /// regard to case would take it for this one.
    pub(crate) const fn case_variant(member: &'static str) -> Self {
        Self {
            member,
            expected: "written exactly so: a member's name differs from it in case alone",
        }
    }
}
