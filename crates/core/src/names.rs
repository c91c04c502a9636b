//! Ids that the operator chose, the rule that makes exposed tool names out of them, and the names
//! of requests.

pub mod exposed_uri;
pub(crate) mod request_name;
pub(crate) mod tool_naming;

use std::fmt;
use std::sync::Arc;

pub use request_name::RequestName;
pub use tool_naming::{NameAlphabet, NamingError, ToolNaming};

/// The id of an upstream server: `[a-z][a-z0-9-]{0,23}`, from the config, never from the server
/// itself.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(Arc<str>);

/// A text that is not an upstream id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an upstream id: use 1 to 24 of a-z, 0-9 and -, starting with a letter")]
pub struct BadUpstreamId(String);

impl UpstreamId {
    /// The most bytes of an id.
    pub const MAX_BYTES: usize = 24;

    /// Checks the grammar.
    ///
    /// # Errors
    ///
    /// [`BadUpstreamId`] if the text does not match it.
    pub fn new(text: &str) -> Result<Self, BadUpstreamId> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let is_good = first && rest && text.len() <= Self::MAX_BYTES;
        if is_good {
            Ok(Self(text.into()))
        } else {
            Err(BadUpstreamId(text.to_owned()))
        }
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id's text, without a copy.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path of an endpoint for clients, such as `/mcp`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(Arc<str>);

impl EndpointId {
    /// Takes a path as the config has it; the config's checks reject illegal paths.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self(path.into())
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_ids_follow_their_grammar() {
        for good in ["a", "files", "a-1", "abcdefghijklmnopqrstuvwx"] {
            assert_eq!(
                UpstreamId::new(good).map(|id| id.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in ["", "A", "1a", "-a", "a_b", "abcdefghijklmnopqrstuvwxy", "é"] {
            assert!(UpstreamId::new(bad).is_err(), "{bad}");
        }
    }
}
