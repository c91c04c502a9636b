//! The challenge `WWW-Authenticate: Bearer`, as RFC 6750 and RFC 9728 use it.

/// A server's challenge for a token, or for a better one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginChallenge {
    /// The URL of its metadata (RFC 9728).
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub(crate) scope: Option<String>,
    /// The error code of the refused token.
    pub(crate) error: Option<String>,
}

impl LoginChallenge {
    /// Parses the header's values. Unknown parameters are ignored.
    pub(crate) fn read<'a>(headers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut challenge = Self::default();
        for header in headers {
            let bearer = header
                .to_ascii_lowercase()
                .find("bearer")
                .and_then(|at| header.get(at + "bearer".len()..));
            let mut rest = bearer.unwrap_or_default();
            while let Some((name, value, after)) = parameter(rest) {
                match name.to_ascii_lowercase().as_str() {
                    "resource_metadata" => challenge.resource_metadata = Some(value),
                    "scope" => challenge.scope = Some(value),
                    "error" => challenge.error = Some(value),
                    _ => {}
                }
                rest = after;
            }
        }
        challenge
    }
}

/// Returns the next `name=value` or `name="value"`, and the text after it.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.trim_start_matches([' ', ',', '\t']).split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([',', ' ']).unwrap_or(rest.len());
        return Some((name.trim(), rest[..end].to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, character) in quoted.char_indices() {
        match character {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return Some((name.trim(), value, &quoted[at + 1..])),
            _ => {
                value.push(character);
                escaped = false;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R238.
    #[test]
    fn the_parts_of_a_challenge_are_found() {
        let read = LoginChallenge::read([
            r#"Bearer realm="weir", error="insufficient_scope", scope="a b", resource_metadata="https://a.example/x""#,
        ]);
        assert_eq!(
            read.resource_metadata.as_deref(),
            Some("https://a.example/x")
        );
        assert_eq!(read.scope.as_deref(), Some("a b"));
        assert_eq!(read.error.as_deref(), Some("insufficient_scope"));
    }

    // Proves C19.
    #[test]
    fn odd_challenges_are_read_without_harm() {
        let read = |header| LoginChallenge::read([header]);
        assert_eq!(
            read("Basic realm=\"x\", scope=\"y\""),
            LoginChallenge::default()
        );
        assert_eq!(read("Bearer"), LoginChallenge::default());
        assert_eq!(
            read("bearer scope=one,error=two").scope.as_deref(),
            Some("one")
        );
        assert_eq!(
            read(r#"Bearer scope="a\"b", error="c""#).scope.as_deref(),
            Some("a\"b")
        );
        assert_eq!(
            read(r#"Bearer scope="never closed"#),
            LoginChallenge::default()
        );
        assert_eq!(read("Bearer \u{fc}=\"\u{fc}\", =,=,\"").error, None);
    }
}
