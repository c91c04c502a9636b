//! The network of a client: the unit of the limits for one client among many.

use std::net::{IpAddr, Ipv6Addr};

/// The IPv4 address itself, or the first address of the /64 of an IPv6 one, because one client
/// commonly has all addresses of a /64.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}
