//! Limits of open connections, overall and by address. An IPv6 address counts as its /64, because
//! one client commonly has all addresses of it. A slot is released when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::client_network::client_network;

/// The open connections. The map has an entry for each connected address only, so the overall limit
/// bounds it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlots(Mutex<SlotCounts>);

#[derive(Debug, Default)]
struct SlotCounts {
    open: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The reason that a connection gets no slot; `as_str` is the label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    Total,
    Address,
}

impl NoSlot {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Total => "too_many_connections",
            Self::Address => "too_many_of_address",
        }
    }
}

/// The slot of an open connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    address: IpAddr,
}

impl ConnectionSlots {
    /// Takes a slot for a connection from `address`. Loopback is bound by the overall limit only,
    /// because all clients of a local proxy have one address.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        total: usize,
        per_address: usize,
    ) -> Result<ConnectionSlot, NoSlot> {
        let (address, is_local) = (
            client_network(address),
            address.to_canonical().is_loopback(),
        );
        let mut counts = self.0.lock();
        if counts.open >= total {
            return Err(NoSlot::Total);
        }
        let of_address = counts.by_address.entry(address).or_insert(0);
        if *of_address >= per_address && !is_local {
            if *of_address == 0 {
                counts.by_address.remove(&address);
            }
            return Err(NoSlot::Address);
        }
        *of_address += 1;
        counts.open += 1;
        drop(counts);
        Ok(ConnectionSlot {
            slots: self.clone(),
            address,
        })
    }

    #[cfg(test)]
    fn open(&self) -> (usize, usize) {
        let counts = self.0.lock();
        (counts.open, counts.by_address.len())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.slots.0.lock();
        counts.open -= 1;
        if let Entry::Occupied(mut entry) = counts.by_address.entry(self.address) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    // Proves A13.
    #[test]
    fn connection_caps_hold_and_slots_are_returned() {
        let slots = Arc::new(ConnectionSlots::default());
        let (one, two): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let a = slots.take(one, 3, 2).unwrap();
        let _b = slots.take(one, 3, 2).unwrap();
        assert_eq!(slots.take(one, 3, 2).unwrap_err(), NoSlot::Address);
        let _c = slots.take(two, 3, 2).unwrap();
        assert_eq!(slots.take(two, 3, 2).unwrap_err(), NoSlot::Total);
        drop(a);
        let d = slots.take(one, 3, 2).unwrap();
        drop(d);
        assert_eq!(slots.open(), (2, 2));
    }

    // Proves A13.
    #[test]
    fn addresses_of_one_ipv6_network_share_connection_slots() {
        let slots = Arc::new(ConnectionSlots::default());
        let take = |text: &str| slots.take(text.parse().unwrap(), 100, 2);
        let held = [
            take("2001:db8:1:2::1").unwrap(),
            take("2001:db8:1:2:ffff::9").unwrap(),
        ];
        assert_eq!(
            take("2001:db8:1:2:abcd:1:2:3").unwrap_err(),
            NoSlot::Address
        );
        let other = take("2001:db8:1:3::1").unwrap();
        // An IPv4-mapped address counts as the IPv4 address.
        let mapped = [
            take("::ffff:192.0.2.1").unwrap(),
            take("192.0.2.1").unwrap(),
        ];
        assert_eq!(take("::ffff:192.0.2.1").unwrap_err(), NoSlot::Address);
        let local: Vec<_> = (0..3)
            .flat_map(|_| [take("::1").unwrap(), take("::ffff:127.0.0.1").unwrap()])
            .collect();
        drop((held, other, mapped, local));
        assert_eq!(slots.open(), (0, 0));
    }

    // Proves A13.
    #[test]
    fn loopback_is_bound_by_the_total_only() {
        let slots = Arc::new(ConnectionSlots::default());
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        let held: Vec<_> = (0..5).map(|_| slots.take(local, 5, 1).unwrap()).collect();
        assert_eq!(slots.take(local, 5, 1).unwrap_err(), NoSlot::Total);
        drop(held);
        assert_eq!(slots.open(), (0, 0));
    }
}
