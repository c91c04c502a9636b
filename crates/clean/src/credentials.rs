//! Masks credentials in lines that operators read: output of programs, and errors of servers.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// The replacement of a credential.
pub(crate) const MASK: &str = "***";

/// The usual forms: the user part of a URL, a value after an authentication scheme, and one after a
/// name such as `token`: a text in quotes, or one without spaces.
static FORMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let user = r#"(?P<address>://)[^\s"'/]+@"#;
    let scheme = r"(?P<scheme>\b(?:bearer|basic)\s+)(?P<value>[A-Za-z0-9._~+/-]{6,}=*)";
    let name = r"(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key)";
    let quoted = r#"\\"(?:[^"\\\n]|\\[^"])+|"(?:[^"\\\n]|\\.)+|'(?:[^'\\\n]|\\.)+"#;
    let plain = r#"(?:[^\s"'\\&,;<>]|\\[^\s"']){6,}"#;
    let named = format!(
        r#"(?P<name>{name}\\?["']?\s*[=:]\s*)(?:(?:bearer|basic)\s+)?(?:(?P<quoted>{quoted})|{plain})"#
    );
    Regex::new(&format!("(?i){user}|{named}|{scheme}")).ok()
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
        let part = |name: &str| found.name(name).map(|part| part.as_str());
        match (part("address"), part("scheme"), part("name")) {
            (Some(before), _, _) => format!("{before}{MASK}@"),
            (_, Some(_), _) if part("value").is_some_and(is_word) => found[0].to_owned(),
            (_, Some(before), _) => format!("{before}{MASK}"),
            (_, _, name) => {
                let quote = part("quoted").map_or("", opening_quote);
                format!("{}{quote}{MASK}", name.unwrap_or_default())
            }
        }
    })
}

/// The quote, perhaps escaped, that a text begins with.
fn opening_quote(text: &str) -> &str {
    let length = if text.starts_with('\\') { 2 } else { 1 };
    &text[..length]
}

/// True for a word of a sentence after the name of a scheme, such as "basic authentication", and
/// for the name of a parameter of the scheme.
fn is_word(value: &str) -> bool {
    let word = value.trim_end_matches(['.', '-']);
    let word = word.strip_suffix('=').unwrap_or(word);
    let rest = word.get(1..).unwrap_or_default();
    let lower = |next: u8| next.is_ascii_lowercase() || matches!(next, b'-' | b'_');
    word.len() < 20
        && word.starts_with(|first: char| first.is_ascii_alphabetic())
        && (rest.bytes().all(lower) || word.bytes().all(|next| next.is_ascii_uppercase()))
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
            (
                "aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY in env",
                "aws_secret_access_key=*** in env",
            ),
            (
                "Authorization: Basic ab/cdefghijk1234567== sent",
                "Authorization: Basic *** sent",
            ),
            ("Basic dXNlcjpw/YXNzd29yZA==", "Basic ***"),
            ("basic dXNlcjpwYXNz", "basic ***"),
            ("Bearer eyJhbGciOi.J9/x", "Bearer ***"),
            ("token: Bearer abcdef/ghi", "token: ***"),
            ("client_secret=abc/def/ghi", "client_secret=***"),
            ("password=p@ssw0rd123", "password=***"),
            (r"password=ab\cdefgh", "password=***"),
            ("https://user:p@ss@host/x", "https://***@host/x"),
            ("postgres://user:p?a#ss@host/x", "postgres://***@host/x"),
            (
                r#"{\"password\":\"hunter2x\",\"user\":\"me\"}"#,
                r#"{\"password\":\"***\",\"user\":\"me\"}"#,
            ),
            (
                r#"{"password":"correct horse battery","user":"me"}"#,
                r#"{"password":"***","user":"me"}"#,
            ),
            (r#"{"secret": "a \" b, c's"}"#, r#"{"secret": "***"}"#),
            ("secret = 'two words'", "secret = '***'"),
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
            "Basic Authentication failed.",
            "basic authorization-code",
            "BEARER AUTHENTICATION",
            r#"Bearer resource_metadata="https://host/x""#,
            r#"Basic charset="UTF-8""#,
            r#"{"error":"invalid_token","token_type":"Bearer","token":""}"#,
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
