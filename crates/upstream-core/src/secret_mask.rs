//! Masks the secrets of one upstream's config in lines that its server prints, before operators
//! read them.

use std::borrow::Cow;
use std::sync::Arc;

/// The shortest value that is masked. Shorter values are words such as `production` or `true`, and
/// masking them would make every line unreadable.
const MIN_SECRET_BYTES: usize = 8;
const MASK: &str = "***";

/// The secrets, the longest first. Clones share them.
#[derive(Clone, Default)]
pub struct SecretMask(Arc<[Box<str>]>);

impl SecretMask {
    /// Makes the mask of these texts; short ones are left out.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<Box<str>> = texts.map(Into::into).collect();
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        // The longest first: a secret that is the beginning of another would leave the rest of that
        // one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets.into())
    }

    /// Returns the text with `***` in place of each secret.
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut masked = Cow::Borrowed(text);
        for secret in self.0.iter().filter(|secret| text.contains(&***secret)) {
            masked = Cow::Owned(masked.replace(&**secret, MASK));
        }
        masked
    }
}

impl std::fmt::Debug for SecretMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretMask({})", self.0.len())
    }
}
