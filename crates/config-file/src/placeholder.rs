//! Placeholders from examples in place of secrets: weir neither accepts nor sends them as
//! credentials.

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use data_encoding::BASE64;

/// Words that a random secret does not contain by chance.
const WORDS: [&str; 12] = [
    "changeme",
    "change-me",
    "change_me",
    "change me",
    "placeholder",
    "example",
    "replaceme",
    "replace-me",
    "replace_me",
    "your-",
    "your_",
    "insert-",
];
/// Texts that are placeholders as a whole. A random secret may contain them.
const WHOLE: [&str; 6] = ["secret", "password", "passwd", "token", "todo", "fixme"];
/// Endings of the last part of a name that holds a credential: of a header, a variable, or a query
/// parameter.
const CREDENTIALS: [&str; 8] = [
    "authorization",
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "cookie",
    "credentials",
];

/// Reports if a text is not a usable secret: too short, too uniform, or a known example.
pub fn is_placeholder(secret: &str) -> bool {
    let mut seen: Vec<u8> = secret.bytes().collect();
    seen.sort_unstable();
    let few = seen.chunk_by(|a, b| a == b).count() < 5;
    let lower = secret.to_ascii_lowercase();
    few || secret.len() < 8
        || is_example(secret)
        || ["todo", "<", "password"]
            .iter()
            .any(|word| lower.contains(word))
}

/// Reports if a text is a placeholder from an example. A short text may be a real credential, so
/// length is not a criterion.
fn is_example(text: &str) -> bool {
    let lower = text.trim().to_ascii_lowercase();
    let bare = lower
        .trim_start_matches(['<', '[', '{', '$'])
        .trim_end_matches(['>', ']', '}']);
    let bracketed = lower.starts_with('<') && lower.ends_with('>');
    let one_letter =
        lower.len() >= 4 && lower.bytes().all(|byte| Some(byte) == lower.bytes().next());
    bracketed
        || one_letter
        || WHOLE.contains(&bare)
        || WORDS.iter().any(|word| lower.contains(word))
}

/// Reports a header, variable or query parameter with the name of a credential and a placeholder as
/// value.
pub fn report_placeholder(name: &str, value: &str, path: &ConfigPath, report: &mut ConfigReport) {
    if holds_credential(name) && credential_parts(value).iter().any(|text| is_example(text)) {
        report.add(error(path.clone()));
    }
}

/// Reports if a header, a variable or a query parameter of this name holds a credential.
pub fn holds_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    matches!(last, "key" | "auth" | "pass") || CREDENTIALS.iter().any(|end| last.ends_with(end))
}

/// Returns the error about a placeholder, with its hint.
pub fn error(path: ConfigPath) -> ConfigProblem {
    ConfigProblem::error(path, "is a placeholder, not a secret")
        .hint("take the real one from the environment, such as ${TOKEN}")
}

/// Returns the parts of a header's value that may be a credential: all of it, the text after a
/// scheme, and the password of `Basic`.
fn credential_parts(value: &str) -> Vec<String> {
    let mut parts = vec![value.to_owned()];
    if let Some((scheme, rest)) = value.split_once(' ') {
        parts.push(rest.to_owned());
        let decoded = BASE64
            .decode(rest.trim().as_bytes())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some((_, password)) = decoded.as_deref().and_then(|pair| pair.split_once(':'))
            && scheme.eq_ignore_ascii_case("Basic")
        {
            parts.push(password.to_owned());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(name: &str, value: &str) -> bool {
        let mut report = ConfigReport::default();
        report_placeholder(name, value, &ConfigPath::at("x"), &mut report);
        report.has_errors()
    }

    #[test]
    fn placeholder_credential_is_refused_by_header_or_variable_name() {
        let basic = |pair: &str| format!("Basic {}", BASE64.encode(pair.as_bytes()));
        for (name, value) in [
            ("Authorization", "Bearer changeme".to_owned()),
            ("authorization", "bearer <token>".to_owned()),
            ("Authorization", "Bearer YOUR_API_KEY".to_owned()),
            ("Authorization", basic("weir:changeme")),
            ("X-Api-Key", "xxxxxxxx".to_owned()),
            ("x-api-key", "change-me-please".to_owned()),
            ("GITHUB_TOKEN", "<your-token>".to_owned()),
            ("DB_PASSWORD", "password".to_owned()),
            ("accessToken", "TODO".to_owned()),
            ("Cookie", "session=placeholder".to_owned()),
        ] {
            assert!(is_refused(name, &value), "{name}: {value}");
        }
        for (name, value) in [
            (
                "Authorization",
                "Bearer eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl".to_owned(),
            ),
            ("Authorization", basic("admin:9c1f-44")),
            ("Authorization", "x".to_owned()),
            ("X-Api-Key", "k3".to_owned()),
            ("X-Team", "example".to_owned()),
            ("TOKEN_KIND", "secret".to_owned()),
            ("PASSWORD_FILE", "/run/example".to_owned()),
            (
                "GITHUB_TOKEN",
                "ghp_16C7e42F292c6912E7710c838347Ae178B4a".to_owned(),
            ),
        ] {
            assert!(!is_refused(name, &value), "{name}: {value}");
        }
    }
}
