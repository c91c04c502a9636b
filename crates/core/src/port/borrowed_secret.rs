//! A secret on its way to the code that verifies or sends it.

use std::fmt;

/// A borrowed secret that cannot be printed.
#[derive(Clone, Copy)]
pub struct BorrowedSecret<'a>(&'a str);

impl<'a> BorrowedSecret<'a> {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The text, for the code that verifies it.
    #[must_use]
    pub fn expose(&self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for BorrowedSecret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}
