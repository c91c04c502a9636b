//! The challenge `WWW-Authenticate: Bearer` of a 401 or 403: the token that a server wants (RFC
//! 6750, RFC 9728). The text is untrusted; its reader bounds the header lines.

/// The most scopes that are read.
const MAX_SCOPES: usize = 64;
/// The longest scope that is shown.
const MAX_SCOPE_BYTES: usize = 100;

/// A challenge of the scheme `Bearer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// The URL of the server's metadata (RFC 9728). Not checked yet.
    pub resource_metadata: Option<String>,
    /// The scopes that the request needs, separated by spaces.
    pub scope: Option<String>,
    /// The error code of the refused token.
    pub error: Option<String>,
}

impl BearerChallenge {
    /// Parses the first `Bearer` challenge of a header line; absent if the line has none.
    ///
    /// Of a parameter that occurs twice the first counts. A malformed rest of the line is left
    /// unread.
    pub fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut found: Option<Self> = None;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let Some((word, after)) = split_token(rest) else {
                // Credentials of another scheme may have a `/`.
                let next = rest.find(',').filter(|_| found.is_none());
                let Some(next) = next else { return found };
                rest = &rest[next..];
                continue;
            };
            let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
            match (value, &mut found) {
                (Some(value), found) => {
                    let value = split_value(value.trim_start_matches([' ', '\t']));
                    let Some((text, after)) = value else {
                        return found.take();
                    };
                    if let Some(challenge) = found {
                        challenge.set_parameter(word, text);
                    }
                    rest = after;
                }
                // The next scheme ends the challenge.
                (None, Some(_)) => return found,
                (None, None) => {
                    found = word.eq_ignore_ascii_case("Bearer").then(Self::default);
                    rest = after;
                }
            }
        }
    }

    /// Returns the first single scopes of `scope`.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let scope = self.scope.as_deref().unwrap_or_default();
        let scopes = scope.split(' ').filter(|scope| !scope.is_empty());
        scopes.take(MAX_SCOPES)
    }

    /// Returns the scopes that the token of a request lacked, if the server refused the request for
    /// that (403), without those that operators could not be shown. Some servers state the scopes
    /// without an error code.
    pub fn lacking_scopes(&self) -> Option<Vec<&str>> {
        let is_about_scopes = match self.error.as_deref() {
            Some(error) => error == "insufficient_scope",
            None => self.scope.is_some(),
        };
        is_about_scopes.then(|| self.scopes().filter(|scope| is_plain(scope)).collect())
    }

    fn set_parameter(&mut self, name: &str, text: String) {
        let parameter = match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => &mut self.resource_metadata,
            "scope" => &mut self.scope,
            "error" => &mut self.error,
            _ => return,
        };
        parameter.get_or_insert(text);
    }
}

/// True for a scope of permitted characters (RFC 6749, 3.3) that a text in backticks can quote.
fn is_plain(scope: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_graphic() && !b"\"\\`".contains(&byte);
    scope.len() <= MAX_SCOPE_BYTES && scope.bytes().all(is_permitted)
}

/// Splits a token (RFC 9110, 5.6.2) from the text that follows it.
fn split_token(text: &str) -> Option<(&str, &str)> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Splits a parameter's value, quoted or not, from the text that follows it.
fn split_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return Some((value, &quoted[at + 1..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn challenge(
        metadata: Option<&str>,
        scope: Option<&str>,
        error: Option<&str>,
    ) -> BearerChallenge {
        BearerChallenge {
            resource_metadata: metadata.map(str::to_owned),
            scope: scope.map(str::to_owned),
            error: error.map(str::to_owned),
        }
    }

    // Proves R238, R256, R266.
    #[test]
    fn a_bearer_challenge_is_found_among_others() {
        let full = challenge(
            Some("https://a/x"),
            Some("read write"),
            Some("insufficient_scope"),
        );
        for line in [
            r#"Bearer resource_metadata="https://a/x", error="insufficient_scope", scope="read write""#,
            r#"bearer  scope = "read write" ,error=insufficient_scope,, Resource_Metadata=https://a/x"#,
            r#"Basic realm="a \" Bearer x=y", Bearer error="insufficient_scope", scope="read write", resource_metadata="https://a/x", Digest realm="b""#,
            r#"Bearer resource_metadata="https://a/x",resource_metadata="https://evil/", error="insufficient_scope", scope="read write", scope=admin"#,
            r#"Negotiate a/b+c==, Bearer realm="weir" error=insufficient_scope scope="read write" resource_metadata=https://a/x"#,
        ] {
            assert_eq!(BearerChallenge::parse(line).as_ref(), Some(&full), "{line}");
        }
        let spaced = challenge(None, Some("read  write "), None);
        assert_eq!(spaced.scopes().collect::<Vec<_>>(), ["read", "write"]);
        let many = challenge(None, Some(&"a ".repeat(1000)), None);
        assert_eq!(many.scopes().count(), MAX_SCOPES);
        assert_eq!(
            BearerChallenge::parse("Bearer"),
            Some(BearerChallenge::default())
        );
        for other in [
            "",
            "Basic realm=\"x\", scope=\"y\"",
            "Basic realm=\"bearer scope=y\"",
            "Digest resource_metadata=\"https://a/x\"",
            "Negotiate a/b==",
            "=",
            ",,,",
        ] {
            assert_eq!(BearerChallenge::parse(other), None, "{other}");
        }
    }

    // Proves C19.
    #[test]
    fn lacking_scopes_have_permitted_characters() {
        let lacking = |scope: Option<&str>, error: Option<&str>| {
            let challenge = challenge(None, scope, error);
            challenge.lacking_scopes().map(|scopes| scopes.join(" "))
        };
        let named = Some("insufficient_scope");
        assert_eq!(lacking(Some("a w:3"), named).as_deref(), Some("a w:3"));
        assert_eq!(lacking(Some("a"), None).as_deref(), Some("a"));
        assert_eq!(lacking(None, named).as_deref(), Some(""));
        assert_eq!(lacking(Some("a"), Some("invalid_token")), None);
        assert_eq!(lacking(None, None), None);
        let odd = format!("a`b a\"b a\\b \u{1b}[2J \u{fc} {} good", "x".repeat(101));
        assert_eq!(lacking(Some(&odd), named).as_deref(), Some("good"));
    }

    // Proves C19.
    #[test]
    fn odd_challenges_are_read_without_harm() {
        for (line, scope, error) in [
            ("bearer scope=one,error=two", Some("one"), Some("two")),
            (r#"Bearer scope="a\"b", error="c""#, Some("a\"b"), Some("c")),
            (r#"Bearer scope="never closed"#, None, None),
            (r#"Bearer scope=a, error="never closed"#, Some("a"), None),
            ("Bearer \u{fc}=\"\u{fc}\", =,=,\"", None, None),
            ("Bearer \"", None, None),
        ] {
            let expected = challenge(None, scope, error);
            assert_eq!(BearerChallenge::parse(line), Some(expected), "{line}");
        }
    }

    proptest! {
        // Proves C19.
        #[test]
        fn arbitrary_challenges_do_not_panic(line in r#"(Bearer |Basic |[a-z]{1,4}|=|"|\\|,| |[^\x00-\x1f\x7f-\u{10ffff}]){0,40}"#) {
            let _read = BearerChallenge::parse(&line);
        }
    }
}
