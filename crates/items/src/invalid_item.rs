//! The reasons for which a member of a list is no item.

/// The reason why a member of a list is no item, with its key if that was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidItem {
    /// Not a JSON object within the limits of upstream messages.
    #[error("the item is not a JSON object within the limits")]
    Malformed,
    /// Its key (`name`, `uri` or `uriTemplate`) is absent, given twice, or not a string.
    #[error("the item has no single name or URI")]
    Name,
    /// Its URI has no scheme, or no valid host or port. Clients that parse URIs would refuse the
    /// whole list for it.
    #[error("the URI has no scheme, or an invalid host or port")]
    Uri(String),
    /// A number in it is one that no double holds. Readers of JSON would refuse the whole list for
    /// it.
    #[error("a number in the item is beyond the range of a double")]
    Number(String),
    /// Its `inputSchema` is not one of an object, as the arguments of a tool are.
    #[error("the inputSchema is not a schema of type object")]
    InputSchema(String),
}

impl InvalidItem {
    /// The name or URI of the item; empty if it could not be read.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Malformed | Self::Name => "",
            Self::Uri(key) | Self::Number(key) | Self::InputSchema(key) => key,
        }
    }
}
