//! Checks a URL that an outsider names, before its host is resolved.

use url::{Host, Url};

use crate::guard::UrlRefusal;
use crate::guard::public_address::is_public;

/// The longest URL that is opened.
const MAX_URL_BYTES: usize = 2048;
/// The ports of HTTPS. Servers on other ports speak other protocols.
const HTTPS_PORTS: [u16; 2] = [443, 8443];
/// Suffixes of names that have a local meaning on every network.
const LOCAL_SUFFIXES: [&str; 6] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "lan",
    "home.arpa",
];

/// Returns the URL in its canonical spelling if it may be opened. Its name still has to be
/// resolved, and the addresses checked.
///
/// # Errors
/// [`UrlRefusal`]: the rule that the URL breaks.
pub(crate) fn check_url(text: &str) -> Result<String, UrlRefusal> {
    // Parsers disagree about characters that they drop, mend or translate (blanks, backslashes,
    // letters of other scripts).
    if text.len() > MAX_URL_BYTES
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    {
        return Err(UrlRefusal::Malformed);
    }
    let url = Url::parse(text).map_err(|_| UrlRefusal::Malformed)?;
    if url.scheme() != "https" {
        return Err(UrlRefusal::Scheme);
    }
    // Also if both are empty: `https://@host/`.
    let authority = text.split_once("://").map_or("", |(_, rest)| {
        rest.split(['/', '?', '#']).next().unwrap_or(rest)
    });
    if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
        return Err(UrlRefusal::Credentials);
    }
    if authority.is_empty() || url.fragment().is_some() {
        return Err(UrlRefusal::Malformed);
    }
    match url.host() {
        Some(Host::Ipv4(address)) if is_public(address.into()) => {}
        Some(Host::Ipv6(address)) if is_public(address.into()) => {}
        Some(Host::Domain(name)) if is_public_name(name) => {}
        _ => return Err(UrlRefusal::Address),
    }
    if url
        .port_or_known_default()
        .is_none_or(|port| !HTTPS_PORTS.contains(&port))
    {
        return Err(UrlRefusal::Port);
    }
    Ok(url.into())
}

/// True for a name in the public name space, as far as the name alone shows.
fn is_public_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    name.contains('.')
        && name.split('.').all(is_label)
        && !LOCAL_SUFFIXES.iter().any(|local| {
            name.strip_suffix(local)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use UrlRefusal::*;

    /// Sixty spellings of private addresses, and some URLs that are refused for other reasons.
    const SPELLINGS: [(&str, UrlRefusal); 65] = [
        ("https://127.0.0.1/", Address),
        ("https://127.1/", Address),
        ("https://127.0.1/", Address),
        ("https://0x7f000001/", Address),
        ("https://0x7f.0.0.1/", Address),
        ("https://0x7F.0x0.0x0.0x1/", Address),
        ("https://2130706433/", Address),
        ("https://017700000001/", Address),
        ("https://0177.0.0.1/", Address),
        ("https://0177.0.0x1/", Address),
        ("https://127.0.0.1./", Address),
        ("https://0/", Address),
        ("https://0.0.0.0/", Address),
        ("https://00000000/", Address),
        ("https://[::1]/", Address),
        ("https://[0:0:0:0:0:0:0:1]/", Address),
        ("https://[::]/", Address),
        ("https://[::ffff:127.0.0.1]/", Address),
        ("https://[::ffff:7f00:1]/", Address),
        ("https://[::ffff:10.0.0.1]/", Address),
        ("https://[::127.0.0.1]/", Address),
        ("https://[64:ff9b::7f00:1]/", Address),
        ("https://[64:ff9b::169.254.169.254]/", Address),
        ("https://[2002:7f00:1::]/", Address),
        ("https://[fe80::1]/", Address),
        ("https://[fd00:ec2::254]/", Address),
        ("https://169.254.169.254/latest/meta-data/", Address),
        ("https://0xa9fea9fe/", Address),
        ("https://2852039166/", Address),
        ("https://0251.0376.0251.0376/", Address),
        ("https://10.0.0.1/", Address),
        ("https://10.1/", Address),
        ("https://172.16.0.1/", Address),
        ("https://192.168.1.1:8443/", Address),
        ("https://100.100.100.200/", Address),
        ("https://192.0.0.192/", Address),
        ("https://localhost/", Address),
        ("https://LOCALHOST/", Address),
        ("https://localhost./", Address),
        ("https://a.localhost/", Address),
        ("https://metadata.google.internal/", Address),
        ("https://printer.local/", Address),
        ("https://router.home.arpa/", Address),
        ("https://redis/", Address),
        ("https://redis./", Address),
        ("https://127.0.0.1%2f.example.com/", Malformed),
        ("https://%31%32%37.0.0.1/", Address),
        ("https://%6cocalhost/", Address),
        ("http://example.com/", Scheme),
        ("http://127.0.0.1/", Scheme),
        ("file:///etc/passwd", Scheme),
        ("gopher://example.com:6379/_SET", Scheme),
        ("javascript:alert(1)", Scheme),
        ("data:application/json,{}", Scheme),
        ("ftp://example.com/", Scheme),
        ("https://user:secret@example.com/", Credentials),
        ("https://example.com@127.0.0.1/", Credentials),
        ("https://@example.com/", Credentials),
        ("https://example.com:6379/", Port),
        ("https://example.com:80/", Port),
        ("https://\u{ff11}\u{ff12}\u{ff17}.0.0.1/", Malformed),
        ("https://\u{24db}ocalhost/", Malformed),
        ("https:\\\\127.0.0.1\\", Malformed),
        ("ht\ntps://127.0.0.1/", Malformed),
        ("https://example.com/#fragment", Malformed),
    ];

    // Proves C18, R271, R272, R273.
    #[test]
    fn every_spelling_of_a_private_address_is_refused() {
        for (text, expected) in SPELLINGS {
            assert_eq!(check_url(text), Err(expected), "{text}");
        }
        for text in [
            "",
            "/relative",
            "//example.com/",
            "https:example",
            "https:/",
            "https://",
            "https:///",
            "example.com",
        ] {
            assert!(check_url(text).is_err(), "{text}");
        }
        assert_eq!(
            check_url(&format!(
                "https://example.com/{}",
                "a".repeat(MAX_URL_BYTES)
            )),
            Err(Malformed)
        );
    }

    #[test]
    fn public_https_urls_are_canonicalized() {
        for (text, canonical) in [
            ("https://example.com", "https://example.com/"),
            (
                "HTTPS://Example.COM:443/a/../b?c=d",
                "https://example.com/b?c=d",
            ),
            ("https://example.com./", "https://example.com./"),
            (
                "https://id.example.com:8443/.well-known/x",
                "https://id.example.com:8443/.well-known/x",
            ),
            ("https://8.8.8.8/", "https://8.8.8.8/"),
            ("https://0x08080808/", "https://8.8.8.8/"),
            ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
            (
                "https://xn--bcher-kva.example/",
                "https://xn--bcher-kva.example/",
            ),
            (
                "https://notlocal.example.com/",
                "https://notlocal.example.com/",
            ),
        ] {
            assert_eq!(check_url(text).as_deref(), Ok(canonical), "{text}");
        }
    }
}
