//! Values of the config that cannot be printed.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;

/// A header value that cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretHeader(HeaderValue);

impl SecretHeader {
    /// Wraps a value and marks it as sensitive.
    #[must_use]
    pub fn new(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self(value)
    }

    /// Returns the value, for the request that carries it. It stays marked sensitive.
    pub fn expose(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Debug for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A text that cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<str>);

impl SecretText {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text for its one use.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}
