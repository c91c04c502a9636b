//! The strictness of a reload.

/// The treatment of a reload with a config weaker than the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// The weaker config is refused.
    NoWeaker,
    /// The weaker config is applied, as an operator asked for.
    AllowWeaker,
}
