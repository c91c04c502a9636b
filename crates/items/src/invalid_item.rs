//! The reasons for which a member of a list is no item.

/// The reason why a member of a list is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    Uri,
    /// Its `inputSchema` is not one of an object, as the arguments of a tool are.
    #[error("the inputSchema is not a schema of type object")]
    InputSchema,
}
