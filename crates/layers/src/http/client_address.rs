//! The client address of a request: the peer's own, or the one that a trusted proxy reports.
//!
//! An address does not prove an identity; limits of unauthenticated clients and the audit use it.
//! So only addresses written by a trusted machine count, and anything further left in the list is
//! ignored.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::settings::AddressRange;

/// The client's address: the peer, or, if the peer is a trusted proxy, the last untrusted hop of
/// `X-Forwarded-For`.
///
/// Every proxy appends the address it was reached from, so the list is read from its end, through
/// the trusted hops. A hop that is no address ends the reading: the sender left of it may have
/// written anything. In this case, and if every hop is trusted, the last address read counts.
pub(crate) fn client_address(
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: &[AddressRange],
) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut nearest = peer;
    if !is_trusted(peer) {
        return peer;
    }
    for line in headers.get_all("x-forwarded-for").iter().rev() {
        // By bytes: text further left must not make the rest unreadable.
        for hop in line
            .as_bytes()
            .rsplit(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
        {
            // Empty elements of a list are ignored (RFC 9110, 5.6.1).
            if hop.is_empty() {
                continue;
            }
            let Some(address) = std::str::from_utf8(hop).ok().and_then(parse_hop) else {
                return nearest;
            };
            nearest = address;
            if !is_trusted(address) {
                return nearest;
            }
        }
    }
    nearest
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let bare = hop
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(hop);
    let parsed = bare
        .parse()
        .ok()
        .or_else(|| hop.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    parsed.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use http::HeaderValue;

    use super::*;

    const PROXY: &str = "10.0.0.1";

    /// The client address of a request from `peer` with these `X-Forwarded-For` lines; `10.0.0.0/8`
    /// and `::1` are trusted.
    fn counted(peer: &str, lines: &[&str]) -> String {
        let trusted: Vec<AddressRange> = ["10.0.0.0/8", "::1"]
            .map(|text| text.parse().unwrap())
            .into();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(
                "x-forwarded-for",
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
        }
        client_address(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    // Proves A19.
    #[test]
    fn header_of_an_untrusted_peer_is_ignored() {
        for lines in [
            &[][..],
            &["192.0.2.1"],
            &["10.0.0.9, 10.0.0.8"],
            &["127.0.0.1"],
        ] {
            assert_eq!(counted("203.0.113.5", lines), "203.0.113.5", "{lines:?}");
        }
        assert_eq!(counted("2001:db8::5", &["192.0.2.1"]), "2001:db8::5");
    }

    // Proves A19.
    #[test]
    fn of_a_trusted_proxys_list_the_last_hop_that_is_no_proxy_counts() {
        let rows: [(&[&str], &str); 12] = [
            (&[], PROXY),
            (&["192.0.2.1"], "192.0.2.1"),
            // Text left of the first untrusted address is that client's claim.
            (&["198.51.100.9, 192.0.2.1"], "192.0.2.1"),
            (&["127.0.0.1, 10.0.0.7, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
            // Several lines are one list.
            (
                &["198.51.100.9", "192.0.2.1, 10.0.0.3", "10.0.0.2"],
                "192.0.2.1",
            ),
            (&["192.0.2.1", " , ,"], "192.0.2.1"),
            // A client inside the trusted network.
            (&["10.9.9.9, 10.0.0.2"], "10.9.9.9"),
            (&["192.0.2.1:51234"], "192.0.2.1"),
            (&["[2001:db8::7]:443"], "2001:db8::7"),
            (&["[2001:db8::7]"], "2001:db8::7"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            (&["2001:db8::7, ::1"], "2001:db8::7"),
        ];
        for (lines, expected) in rows {
            assert_eq!(counted(PROXY, lines), expected, "{lines:?}");
            assert_eq!(
                counted("::ffff:10.0.0.1", lines).trim_start_matches("::ffff:"),
                expected,
                "{lines:?}"
            );
        }
    }

    // Proves A19.
    #[test]
    fn invalid_forwarded_hop_hides_all_earlier_hops() {
        for hop in [
            "unknown",
            "_hidden",
            "192.0.2.999",
            "192.0.2.1:",
            "\u{e9}",
            "a b",
            "192.0.2.1 evil",
            "127.1",
        ] {
            assert_eq!(
                counted(PROXY, &[&format!("198.51.100.9, {hop}")]),
                PROXY,
                "{hop}"
            );
            assert_eq!(
                counted(PROXY, &[&format!("198.51.100.9, {hop}, 10.0.0.2")]),
                "10.0.0.2",
                "{hop}"
            );
        }
    }
}
