//! The network of a sender: the unit for counting and bounding senders without an identity.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Neighbouring addresses: those that one provider gives to one customer, or that one customer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderNetwork {
    /// A /24.
    V4([u8; 3]),
    /// A /64.
    V6([u8; 8]),
}

impl SenderNetwork {
    /// The network of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl fmt::Display for SenderNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4([a, b, c]) => write!(f, "{}/24", Ipv4Addr::new(a, b, c, 0)),
            Self::V6(half) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(&half);
                write!(f, "{}/64", Ipv6Addr::from(octets))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_network_and_a_mapped_address_is_the_address() {
        let of = |text: &str| SenderNetwork::of(text.parse().expect("an address")).to_string();
        assert_eq!(of("192.0.2.255"), "192.0.2.0/24");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.0/24");
        assert_eq!(of("2001:db8:1:2:ffff::1"), "2001:db8:1:2::/64");
        assert_ne!(of("192.0.3.1"), of("192.0.2.1"));
    }
}
