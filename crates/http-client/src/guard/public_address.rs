//! Classification of public addresses, by the IANA special-purpose registries: every address
//! outside them is public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for an address on the public Internet. False for this machine, a network behind it, and a
/// service of the cloud it runs in, in every notation.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The IPv4 networks that are not public: address and prefix length.
const RESERVED: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8), // "this network"; 0.0.0.0 reaches this machine
    (Ipv4Addr::new(10, 0, 0, 0), 8), // private
    (Ipv4Addr::new(100, 64, 0, 0), 10), // behind a carrier's translation; some clouds' metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // a cloud's host agent
    (Ipv4Addr::new(169, 254, 0, 0), 16), // link-local; most clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12), // private
    (Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24), // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24), // AS112
    (Ipv4Addr::new(192, 88, 99, 0), 24), // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16), // private
    (Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4), // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4), // reserved, and broadcast
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = u32::from(address);
    RESERVED
        .iter()
        .all(|(network, length)| (bits ^ u32::from(*network)) >> (32 - length) != 0)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    match segments {
        // IPv4-mapped and translated (NAT64) addresses are judged by the IPv4 address inside.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(embedded),
        // Protocol assignments, tunnels among them; 6to4, because its embedded address decides the
        // destination; documentation.
        [0x2001, 0..=0x01ff, ..]
        | [0x2001, 0xdb8, ..]
        | [0x2002, ..]
        | [0x3fff, 0..=0x0fff, ..] => false,
        // Global unicast. The rest is loopback, local, multicast or unassigned.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const PRIVATE_ADDRESSES: &str = "
        0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
        127.1.2.3 168.63.129.16 169.254.169.254 169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192
        192.0.2.1 192.31.196.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
        224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::ffff:10.0.0.1 ::ffff:127.0.0.1
        ::ffff:169.254.169.254 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 100::1 2001::1
        2001:2::1 2001:10::1 2001:1ff::1 2001:db8::1 2002:7f00:1:: 2002:808:808::1 3fff::1 5f00::1 fc00::1
        fd00:ec2::254 fdff::1 fe80::1 febf::1 fec0::1 ff02::1 4000::1 1fff::1
    ";

    const PUBLIC_ADDRESSES: &str = "
        1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
        168.63.129.15 169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0
        198.17.255.255 198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:200::1
        2001:4860:4860::8888 2606:4700::1111 2a00::1 3fff:1000::1
    ";

    // Proves C18, R271.
    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for (list, public) in [(PRIVATE_ADDRESSES, false), (PUBLIC_ADDRESSES, true)] {
            for text in list.split_whitespace() {
                assert_eq!(is_public(text.parse().unwrap()), public, "{text}");
            }
        }
    }
}
