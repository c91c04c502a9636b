//! The servers that are reached without the forward proxy, in the syntax of `NO_PROXY`.

use std::net::IpAddr;

/// The prefix of IPv4 addresses in IPv6 form.
const MAPPED_PREFIX: u8 = 96;

/// The error of an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is not a name, a suffix, an address, a network or `*`")]
pub struct BypassError {
    /// The entry, without the user and the password of a URL.
    pub(super) entry: String,
}

/// The servers that are reached without the forward proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyBypass(Vec<BypassEntry>);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BypassEntry {
    hosts: BypassHosts,
    /// The port, if the entry covers one alone.
    port: Option<u16>,
}

/// The hosts of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BypassHosts {
    /// All hosts.
    All,
    /// A name in lower case and the names below it.
    Name(String),
    /// The addresses that begin with these bits.
    Network { bits: u128, prefix: u8 },
}

impl ProxyBypass {
    /// Adds an entry: a name, which also covers the names below it, `.suffix` or `*.suffix`, which
    /// mean the same, an address, a network such as `10.0.0.0/8`, or `*` for all servers. A name or
    /// an address may have a port.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn add(&mut self, text: &str) -> Result<(), BypassError> {
        let entry = parse_entry(text.trim()).ok_or_else(|| BypassError {
            entry: without_credentials(text),
        })?;
        self.0.push(entry);
        Ok(())
    }

    /// True for a server that is reached without the proxy. A name is not resolved: networks cover
    /// hosts that are written as addresses.
    pub(crate) fn covers(&self, host: &str, port: u16) -> bool {
        let literal = literal_address(host);
        let name = host.trim_end_matches('.');
        self.0.iter().any(|entry| {
            entry.port.is_none_or(|own| own == port)
                && match (&entry.hosts, literal) {
                    (BypassHosts::All, _) => true,
                    (BypassHosts::Name(suffix), None) => is_at_or_below(name, suffix),
                    (BypassHosts::Network { bits, prefix }, Some(address)) => {
                        shares_prefix(*bits, mapped_bits(address), *prefix)
                    }
                    (BypassHosts::Name(_), Some(_)) | (BypassHosts::Network { .. }, None) => false,
                }
        })
    }
}

/// Returns an entry that may be a URL with a user and a password, without them.
fn without_credentials(text: &str) -> String {
    let Some((before, address)) = text.rsplit_once('@') else {
        return text.to_owned();
    };
    let scheme = before.find("://").map_or("", |at| &before[..at + 3]);
    format!("{scheme}***@{address}")
}

/// Returns the address that a URL's host is, with or without brackets.
pub(crate) fn literal_address(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

fn parse_entry(text: &str) -> Option<BypassEntry> {
    let of = |hosts| BypassEntry { hosts, port: None };
    if text == "*" {
        return Some(of(BypassHosts::All));
    }
    if let Some((address, prefix)) = text.split_once('/') {
        let address: IpAddr = address.parse().ok()?;
        let shift = if address.is_ipv4() { MAPPED_PREFIX } else { 0 };
        let prefix = prefix.parse::<u8>().ok()?.checked_add(shift)?;
        let bits = mapped_bits(address);
        return (prefix <= 128).then_some(of(BypassHosts::Network { bits, prefix }));
    }
    // Before the search for a port: an address without brackets has colons of its own.
    if let Some(address) = literal_address(text) {
        return Some(of(single_address(address)));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok().filter(|&port| port > 0)?)),
        None => (text, None),
    };
    let hosts = match literal_address(host) {
        Some(address) => single_address(address),
        None => BypassHosts::Name(name_suffix(host)?),
    };
    Some(BypassEntry { hosts, port })
}

fn single_address(address: IpAddr) -> BypassHosts {
    BypassHosts::Network {
        bits: mapped_bits(address),
        prefix: 128,
    }
}

/// Returns a name in lower case without the marks of a suffix.
fn name_suffix(text: &str) -> Option<String> {
    let name = text.strip_prefix('*').unwrap_or(text);
    if name.len() < text.len() && !name.starts_with('.') {
        return None;
    }
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.split('.')
        .all(is_label)
        .then(|| name.to_ascii_lowercase())
}

/// True for the name itself and for the names below it.
fn is_at_or_below(name: &str, suffix: &str) -> bool {
    let Some(begin) = name.len().checked_sub(suffix.len()) else {
        return false;
    };
    let (rest, end) = name.as_bytes().split_at(begin);
    end.eq_ignore_ascii_case(suffix.as_bytes()) && matches!(rest, [] | [.., b'.'])
}

/// Returns the bits of an address in IPv6 form.
fn mapped_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn shares_prefix(one: u128, other: u128, prefix: u8) -> bool {
    let rest = 128 - u32::from(prefix);
    (one ^ other).checked_shr(rest).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn entries_cover_names_below_them_addresses_and_networks() {
        let all = [
            ("example.com", "example.com", 443, true),
            ("example.com", "EXAMPLE.com.", 443, true),
            ("example.com", "a.b.Example.Com", 443, true),
            ("example.com", "notexample.com", 443, false),
            ("example.com", "example.com.org", 443, false),
            (".Corp.example", "wiki.corp.example", 80, true),
            (".corp.example", "corp.example", 80, true),
            ("*.corp.example", "wiki.corp.example", 80, true),
            ("*.corp.example", "xcorp.example", 80, false),
            (" intranet ", "intranet", 80, true),
            ("example.com:8443", "example.com", 8443, true),
            ("example.com:8443", "example.com", 443, false),
            ("10.1.2.3", "10.1.2.3", 80, true),
            ("10.1.2.3", "10.1.2.33", 80, false),
            ("10.1.2.3:81", "10.1.2.3", 80, false),
            ("10.1.2.3:81", "10.1.2.3", 81, true),
            ("10.1.2.3", "[::ffff:10.1.2.3]", 80, true),
            ("10.0.0.0/8", "10.255.0.1", 80, true),
            ("10.0.0.0/8", "11.0.0.1", 80, false),
            ("10.0.0.0/8", "ten.example", 80, false),
            ("0.0.0.0/0", "8.8.8.8", 80, true),
            ("0.0.0.0/0", "[2001:db8::1]", 80, false),
            ("::/0", "[2001:db8::1]", 80, true),
            ("2001:db8::1", "[2001:db8::1]", 80, true),
            ("[2001:db8::1]", "[2001:db8::1]", 80, true),
            ("[2001:db8::1]:443", "[2001:db8::1]", 80, false),
            ("fd00::/8", "[fd12::1]", 80, true),
            ("fd00::/8", "[fe80::1]", 80, false),
            ("*", "any.example", 1, true),
            ("*", "192.0.2.1", 1, true),
        ];
        for (entry, host, port, covered) in all {
            let mut bypass = ProxyBypass::default();
            bypass.add(entry).unwrap();
            assert_eq!(bypass.covers(host, port), covered, "{entry}: {host}:{port}");
        }
        assert!(!ProxyBypass::default().covers("any.example", 1));
    }

    #[test]
    fn text_that_is_no_entry_is_an_error() {
        for text in [
            "",
            ".",
            "*.",
            "**",
            "*example.com",
            "a.*.example",
            "a..b",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "name/8",
            "::/129",
            "name:0",
            "name:65536",
            "name:x",
            "http://name",
            "<local>",
            "a b",
            "192.168.1.*",
        ] {
            assert_eq!(
                ProxyBypass::default().add(text),
                Err(BypassError {
                    entry: text.to_owned()
                }),
                "{text}"
            );
        }
    }
}
