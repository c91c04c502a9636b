//! Masks the secrets of one upstream's config in lines that its server prints, before operators
//! read them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::settings::TransportSettings;

/// The shortest value that is masked. Shorter values are words such as `production` or `true`, and
/// masking them would make every line unreadable.
const MIN_SECRET_BYTES: usize = 8;
const MASK: &str = "***";

/// The secrets, the longest first. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SecretMask(Arc<[Box<str>]>);

impl SecretMask {
    /// Collects the secrets of a config: the values of variables, and of headers without their
    /// authentication scheme.
    pub(crate) fn of(transport: &TransportSettings) -> Self {
        let mut secrets: Vec<Box<str>> = match transport {
            TransportSettings::Stdio(stdio) => stdio
                .env
                .iter()
                .map(|(_, value)| value.expose().into())
                .collect(),
            TransportSettings::Http(http) => {
                let values = http
                    .headers
                    .iter()
                    .filter_map(|(_, value)| value.expose().to_str().ok());
                values
                    .map(|value| value.rsplit(' ').next().unwrap_or(value).into())
                    .collect()
            }
        };
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        // The longest first: a secret that is the beginning of another would leave the rest of that
        // one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets.into())
    }

    /// Returns the text with `***` in place of each secret.
    pub(crate) fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
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

#[cfg(test)]
mod tests {
    use weir_core::UpstreamId;

    use super::*;
    use crate::secret::SecretText;
    use crate::settings::UpstreamSettings;

    #[test]
    fn values_of_variables_are_masked_the_longest_first() {
        let id = UpstreamId::new("u").expect("an id");
        let mut settings = UpstreamSettings::stdio(id, "server", Vec::new());
        let TransportSettings::Stdio(stdio) = &mut settings.transport else {
            panic!("it is a command")
        };
        stdio.env = [("A", "12345678"), ("B", "123456789"), ("MODE", "debug")]
            .map(|(name, value)| (name.to_owned(), SecretText::new(value)))
            .into();
        let mask = SecretMask::of(&settings.transport);
        assert_eq!(
            mask.apply("debug: 123456789 and 12345678"),
            "debug: *** and ***"
        );
        assert_eq!(format!("{mask:?}"), "SecretMask(2)");
    }
}
