//! A range of IP addresses, as configs write it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The bits before the IPv4 address in its IPv6 form (RFC 4291, section 2.5.5.2).
const MAPPED_PREFIX: u8 = 96;

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    prefix: u8,
}

/// The error for a text that is no address range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an address or network: write 10.1.2.3 or 10.0.0.0/8")]
pub struct BadAddressRange(String);

impl AddressRange {
    /// True if the range has every address of its family.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.prefix == 0
    }

    /// True if the address is in the range. An IPv4 address in IPv6 form counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for AddressRange {
    type Err = BadAddressRange;

    fn from_str(text: &str) -> Result<Self, BadAddressRange> {
        let bad = || BadAddressRange(text.to_owned());
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most: u8 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), |prefix| prefix.parse().map_err(|_| bad()))?;
        if prefix > most {
            return Err(bad());
        }
        // An IPv4 range in IPv6 form: addresses are compared as IPv4. A longer range than all of
        // IPv4 would have none of them.
        let is_mapped = address.is_ipv6() && address.to_canonical().is_ipv4();
        let prefix = if is_mapped {
            prefix.checked_sub(MAPPED_PREFIX).ok_or_else(bad)?
        } else {
            prefix
        };
        Ok(Self {
            address: address.to_canonical(),
            prefix,
        })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    // Proves A19.
    #[test]
    fn networks_hold_exactly_their_addresses() {
        let ten: AddressRange = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.0.1".parse().unwrap()));
        assert!(ten.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.1".parse().unwrap()));
        assert!(!ten.contains("::1".parse().unwrap()));
        for (range, inside) in [
            ("::ffff:192.0.2.2", true),
            ("::ffff:192.0.0.0/104", true),
            ("::ffff:192.0.3.0/120", false),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert_eq!(
                range.contains("192.0.2.2".parse().unwrap()),
                inside,
                "{range}"
            );
        }
        let one: AddressRange = "::1".parse().unwrap();
        assert!(one.contains("::1".parse().unwrap()) && !one.contains("::2".parse().unwrap()));
        let all: AddressRange = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("203.0.113.9".parse().unwrap()));
        assert!(!ten.is_everything());
        for all in ["0.0.0.0/0", "0.0.0.0/00", "::/0", "::ffff:0:0/96"] {
            assert!(
                all.parse::<AddressRange>().unwrap().is_everything(),
                "{all}"
            );
        }
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "host",
            "::/129",
            "10.0.0.0/-1",
            "::ffff:0.0.0.0/95",
        ] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }
}
