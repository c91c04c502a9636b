//! The protections that a config gives up by name. What it merely does not mention is not given up.

/// The protections that a config gives up by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waivers {
    /// `auth: { mode: none, allow_anyone: true }`: clients need no credentials.
    pub credentials: bool,
}
