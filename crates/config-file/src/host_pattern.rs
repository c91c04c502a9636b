//! Hosts that URLs may name.

use http::Uri;
use http::uri::Authority;

/// A host, or all hosts of a domain, on one port or on all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The name in lower case. For a domain, the part after the `*`, with its dot.
    name: String,
    /// True for `*.domain`.
    domain: bool,
    port: Option<u16>,
}

impl HostPattern {
    /// Parses `name`, `name:port`, an address, or `*.domain`. Returns `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = match text.strip_prefix('*') {
            Some(rest) => (true, rest.strip_prefix('.')?),
            None => (false, text),
        };
        let authority = rest
            .parse::<Authority>()
            .ok()
            .filter(|authority| !authority.as_str().contains(['@', '*']))?;
        let host = authority.host().to_ascii_lowercase();
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" => None,
            port => Some(
                port.strip_prefix(':')
                    .filter(|port| port.bytes().all(|b| b.is_ascii_digit()))?
                    .parse()
                    .ok()?,
            ),
        };
        let name = if domain { format!(".{host}") } else { host };
        (name.len() > usize::from(domain)).then_some(Self { name, domain, port })
    }

    /// Reports if a URL's host matches. A domain's own name is not one of its hosts.
    pub fn fits(&self, url: &Uri) -> bool {
        let Some(host) = url.host() else { return false };
        let usual = if url.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let host = host.to_ascii_lowercase();
        let named = if self.domain {
            host.len() > self.name.len() && host.ends_with(&self.name)
        } else {
            host == self.name
        };
        named
            && self
                .port
                .is_none_or(|port| port == url.port_u16().unwrap_or(usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, url: &str) -> bool {
        let pattern = HostPattern::parse(pattern).expect("it is a host");
        pattern.fits(&url.parse().expect("it is a URL"))
    }

    #[test]
    fn a_host_is_granted_by_its_name_and_port() {
        for (pattern, url) in [
            ("red.example.com", "https://red.example.com/mcp"),
            ("Red.Example.com", "http://RED.example.COM:99/mcp"),
            ("red.example.com:443", "https://red.example.com/mcp"),
            ("127.0.0.1:3001", "http://127.0.0.1:3001/"),
            ("[::1]:3001", "http://[::1]:3001/"),
            ("*.red.example.com", "https://a.b.red.example.com/"),
        ] {
            assert!(fits(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("red.example.com", "https://red.example.com.evil.example/"),
            ("red.example.com", "https://red.example.com@evil.example/"),
            ("red.example.com", "https://evil.example/red.example.com"),
            ("red.example.com:443", "http://red.example.com/"),
            ("red.example.com:443", "https://red.example.com:8443/"),
            ("127.0.0.1", "http://127.0.0.10/"),
            ("*.red.example.com", "https://red.example.com/"),
            ("*.red.example.com", "https://evilred.example.com/"),
        ] {
            assert!(!fits(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn texts_that_are_no_hosts_are_rejected() {
        for text in [
            "", "*", "*.", "*red", "a.*", "http://a", "u@a", "a:b", "a:+80", "a:99999", "a/b",
            ":80", "*.*.a",
        ] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
    }
}
