//! The challenge in the head of a server's 401 or 403. The text is untrusted: it is read within
//! bounds, and of it only scopes of permitted characters are shown to operators.

use http::{HeaderMap, header};
use weir_oauth::BearerChallenge;

/// The longest header that is read. A longer one has no challenge that weir could use.
const MAX_HEADER_BYTES: usize = 8 << 10;
/// The most header lines that are read.
const MAX_HEADERS: usize = 4;

/// Reads the first `Bearer` challenge. It is empty if the headers have no such challenge.
#[must_use]
pub fn read_challenge(headers: &HeaderMap) -> BearerChallenge {
    let lines = headers
        .get_all(header::WWW_AUTHENTICATE)
        .iter()
        .take(MAX_HEADERS);
    let lines = lines
        .filter(|line| line.len() <= MAX_HEADER_BYTES)
        .filter_map(|line| line.to_str().ok());
    lines
        .filter_map(BearerChallenge::parse)
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(lines: &[&[u8]]) -> BearerChallenge {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_bytes(line).unwrap_or_else(|_| panic!()),
            );
        }
        read_challenge(&headers)
    }

    fn scope(scope: &str) -> BearerChallenge {
        BearerChallenge {
            scope: Some(scope.to_owned()),
            ..BearerChallenge::default()
        }
    }

    // Proves R256.
    #[test]
    fn the_first_bearer_challenge_counts() {
        assert_eq!(
            read(&[b"Negotiate", b"Bearer scope=a", b"Bearer scope=b"]),
            scope("a")
        );
        assert_eq!(read(&[b"Negotiate"]), BearerChallenge::default());
    }

    // Proves C19.
    #[test]
    fn hostile_challenges_are_read_within_bounds() {
        let long = |times| format!("Bearer scope=\"{}\"", "a ".repeat(times));
        assert_eq!(
            read(&[long(1 << 20).as_bytes()]),
            BearerChallenge::default()
        );
        assert_eq!(read(&[long(1000).as_bytes()]), scope(&"a ".repeat(1000)));
        assert_eq!(
            read(&[b"Basic", b"Basic", b"Basic", b"Basic", b"Bearer scope=a"]),
            BearerChallenge::default()
        );
        assert_eq!(
            read(&[b"Bearer scope=\"\xff\x80\""]),
            BearerChallenge::default()
        );
    }
}
