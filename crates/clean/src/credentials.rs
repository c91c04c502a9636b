//! Masks credentials in lines that operators read: output of programs, and errors of servers.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// The replacement of a credential.
pub(crate) const MASK: &str = "***";

/// The usual forms: a value after an authentication scheme or after a name such as `token`, and the
/// user part of a URL.
static FORMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let scheme = r"\b(?:bearer|basic)\s+";
    let name = r#"(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key)["']?\s*[=:]\s*["']?"#;
    Regex::new(&format!(
        r#"(?i)(?P<before>{scheme}|{name}|://)(?:(?:bearer|basic)\s+)?(?P<value>[^\s"'/@]+@|[^\s"'&,;<>/@]{{6,}})"#
    ))
    .ok()
});

/// Replaces each credential in a usual form by `***`: `Bearer VALUE`, `token=VALUE`,
/// `"password": "VALUE"`, `https://USER:PASSWORD@host`. Total and idempotent. A secret in another
/// form stays: known secrets have to be masked before.
#[must_use]
pub fn mask_credentials(text: &str) -> Cow<'_, str> {
    let Some(forms) = &*FORMS else {
        return Cow::Borrowed(text);
    };
    forms.replace_all(text, |found: &regex::Captures<'_>| {
        let (before, value) = (&found["before"], &found["value"]);
        let is_scheme = before.ends_with(char::is_whitespace) && !before.contains(['=', ':']);
        match (before, value.ends_with('@')) {
            ("://", true) => format!("{before}{MASK}@"),
            // A host.
            ("://", false) => found[0].to_owned(),
            // A word of a sentence, such as "basic authentication".
            _ if is_scheme && value.len() < 20 && !value.contains(|c: char| c.is_ascii_digit()) => {
                found[0].to_owned()
            }
            _ => format!("{before}{MASK}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_usual_forms_are_masked() {
        for (text, masked) in [
            (
                "Authorization: Bearer abc.def-123 sent",
                "Authorization: Bearer *** sent",
            ),
            (
                "GITHUB_TOKEN=ghp_0123456789 is bad",
                "GITHUB_TOKEN=*** is bad",
            ),
            (
                r#"{"password": "hunter2x", "user": "me"}"#,
                r#"{"password": "***", "user": "me"}"#,
            ),
            ("api-key: 'abcdef123456'", "api-key: '***'"),
            (
                "GET https://me:secret@host/path failed",
                "GET https://***@host/path failed",
            ),
            (
                "https://host/?token=abcdef123456&x=1",
                "https://host/?token=***&x=1",
            ),
        ] {
            assert_eq!(mask_credentials(text), masked);
            assert_eq!(mask_credentials(masked), masked, "idempotent");
        }
    }

    #[test]
    fn other_text_is_left_alone() {
        for text in [
            "Error: cannot find module foo",
            "invalid token",
            "connect https://host.example:8443/mcp: connection refused",
            "the bearer of this",
            "basic authentication is off",
            r#"Bearer realm="x", error="invalid_token""#,
            "token: none",
            "mail me@example.com",
        ] {
            assert!(
                matches!(mask_credentials(text), Cow::Borrowed(_))
                    || mask_credentials(text) == text,
                "{text}"
            );
        }
    }
}
