//! The challenge of a server's 401 or 403: the token that it wants (RFC 6750, RFC 9728). The text
//! is untrusted: it is read within bounds and is never shown or logged.

use http::{HeaderMap, header};

/// The longest header that is read. A longer one has no challenge that weir could use.
const MAX_HEADER_BYTES: usize = 8 << 10;
/// The most header lines that are read.
const MAX_HEADERS: usize = 4;
/// The most scopes that are read.
const MAX_SCOPES: usize = 64;

/// A `BearerToken` challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BearerChallenge {
    /// The URL of the server's metadata. Not checked yet.
    pub(crate) resource_metadata: Option<String>,
    /// True for `error="insufficient_scope"`.
    pub(crate) insufficient_scope: bool,
    /// The scopes that the server asks for.
    pub(crate) scopes: Vec<String>,
}

impl BearerChallenge {
    /// Reads the first `BearerToken` challenge. It is empty if the headers have no such challenge.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let lines = headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .take(MAX_HEADERS);
        let lines = lines
            .filter(|line| line.len() <= MAX_HEADER_BYTES)
            .filter_map(|line| line.to_str().ok());
        lines.filter_map(parse).next().unwrap_or_default()
    }
}

/// Parses the first `BearerToken` challenge of a header line.
fn parse(line: &str) -> Option<BearerChallenge> {
    let mut rest = line;
    let mut found: Option<BearerChallenge> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = split_token(rest)?;
        let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        match (value, &mut found) {
            (Some(value), found) => {
                let (text, after) = split_value(value.trim_start_matches([' ', '\t']))?;
                if let Some(challenge) = found {
                    challenge.set_parameter(word, text);
                }
                rest = after;
            }
            // The next scheme ends the challenge.
            (None, Some(_)) => return found,
            (None, None) => {
                found = word
                    .eq_ignore_ascii_case("Bearer")
                    .then(BearerChallenge::default);
                rest = after;
            }
        }
        if rest.trim_matches([' ', '\t', ',']).is_empty() {
            return found;
        }
    }
}

impl BearerChallenge {
    fn set_parameter(&mut self, name: &str, text: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" if self.resource_metadata.is_none() => {
                self.resource_metadata = Some(text)
            }
            "error" => self.insufficient_scope = text == "insufficient_scope",
            "scope" if self.scopes.is_empty() => {
                let scopes = text.split(' ').filter(|scope| !scope.is_empty());
                self.scopes = scopes.take(MAX_SCOPES).map(str::to_owned).collect();
            }
            _ => {}
        }
    }
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
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&str]) -> BearerChallenge {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_bytes(line.as_bytes()).unwrap_or_else(|_| panic!()),
            );
        }
        BearerChallenge::read(&headers)
    }

    // Proves R256, R266.
    #[test]
    fn a_bearer_challenge_is_found_among_others() {
        let full = BearerChallenge {
            resource_metadata: Some("https://a/x".to_owned()),
            insufficient_scope: true,
            scopes: vec!["read".to_owned(), "write".to_owned()],
        };
        for line in [
            r#"Bearer resource_metadata="https://a/x", error="insufficient_scope", scope="read write""#,
            r#"bearer  scope = "read  write" ,error=insufficient_scope,, Resource_Metadata=https://a/x"#,
            r#"Basic realm="a \" Bearer x=y", Bearer error="insufficient_scope", scope="read write", resource_metadata="https://a/x", Digest realm="b""#,
            r#"Bearer resource_metadata="https://a/x",resource_metadata="https://evil/", error="insufficient_scope", scope="read write", scope=admin"#,
        ] {
            assert_eq!(read(&[line]), full, "{line}");
        }
        assert_eq!(read(&["Negotiate", "Bearer scope=a"]).scopes, ["a"]);
        assert_eq!(read(&["Bearer"]), BearerChallenge::default());
        for nothing in [
            "",
            "Basic realm=\"x\"",
            "Digest resource_metadata=\"https://a/x\"",
            "=",
            "Bearer \"",
            ",,,",
        ] {
            assert_eq!(read(&[nothing]), BearerChallenge::default(), "{nothing}");
        }
    }

    // Proves C19.
    #[test]
    fn hostile_challenges_are_read_within_bounds() {
        let giant = format!("Bearer scope=\"{}\"", "a ".repeat(1 << 20));
        assert_eq!(read(&[&giant]), BearerChallenge::default());
        let many = format!("Bearer scope=\"{}\"", "a ".repeat(1000));
        assert_eq!(read(&[&many]).scopes.len(), MAX_SCOPES);
        assert_eq!(
            read(&["Basic", "Basic", "Basic", "Basic", "Bearer scope=a"]),
            BearerChallenge::default()
        );
        let bytes =
            HeaderValue::from_bytes(b"Bearer scope=\"\xff\x80\"").unwrap_or_else(|_| panic!());
        assert_eq!(
            BearerChallenge::read(&HeaderMap::from_iter([(header::WWW_AUTHENTICATE, bytes)])),
            BearerChallenge::default()
        );
    }

    proptest! {
        // Proves C19.
        #[test]
        fn arbitrary_challenges_do_not_panic(line in r#"(Bearer |Basic |[a-z]{1,4}|=|"|\\|,| |[^\x00-\x1f\x7f-\u{10ffff}]){0,40}"#) {
            let _read = parse(&line);
        }
    }
}
