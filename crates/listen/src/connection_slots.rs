//! Limits of open connections, overall and by address. An IPv6 address counts as its /64, because
//! one client commonly has all addresses of it. A slot is released when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::address_range::AddressRange;
use crate::client_network::client_network;
use crate::listener_settings::ListenerLimits;

/// The time between two warnings about refused connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The open connections. The map has an entry for each connected network only, so the overall limit
/// bounds it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlots {
    counts: Mutex<SlotCounts>,
    /// By [`NoSlot`].
    refusals: [Mutex<RefusedConnections>; 2],
}

#[derive(Debug, Default)]
struct SlotCounts {
    open: usize,
    by_network: HashMap<IpAddr, usize>,
}

/// The connections that were refused since the last warning about them.
#[derive(Debug, Default)]
struct RefusedConnections {
    refused: u64,
    warned_at: Option<Instant>,
}

impl RefusedConnections {
    /// Counts a refused connection; returns their number if it is time for a warning.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.refused += 1;
        if self
            .warned_at
            .is_some_and(|at| now.duration_since(at) < WARNING_INTERVAL)
        {
            return None;
        }
        self.warned_at = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
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
    /// The network that it counts for; absent for a proxy.
    network: Option<IpAddr>,
}

impl ConnectionSlots {
    /// Takes a slot for a connection from `address`. Loopback and trusted proxies are bound by the
    /// overall limit only, because all clients behind a proxy have its address.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        limits: &ListenerLimits,
        trusted_proxies: &[AddressRange],
    ) -> Result<ConnectionSlot, NoSlot> {
        let is_proxy = address.to_canonical().is_loopback()
            || trusted_proxies.iter().any(|range| range.contains(address));
        let network = (!is_proxy).then(|| client_network(address));
        let mut counts = self.counts.lock();
        if counts.open >= limits.connections {
            return Err(NoSlot::Total);
        }
        if let Some(network) = network {
            let of_network = counts.by_network.entry(network).or_insert(0);
            if *of_network >= limits.connections_per_address {
                if *of_network == 0 {
                    counts.by_network.remove(&network);
                }
                return Err(NoSlot::Address);
            }
            *of_network += 1;
        }
        counts.open += 1;
        drop(counts);
        Ok(ConnectionSlot {
            slots: self.clone(),
            network,
        })
    }

    /// Logs that connections are refused, once a minute for each limit: a proxy that is not trusted
    /// would otherwise lose its clients' connections unseen.
    pub(crate) fn warn(&self, address: IpAddr, reason: NoSlot) {
        let refused = self.refusals[reason as usize].lock().add(Instant::now());
        let Some(refused) = refused else { return };
        match reason {
            NoSlot::Total => {
                tracing::warn!(refused, "client connections refused: too many are open")
            }
            NoSlot::Address => tracing::warn!(
                peer = %address,
                refused,
                "client connections refused: one address has too many"
            ),
        }
    }

    #[cfg(test)]
    fn open(&self) -> (usize, usize) {
        let counts = self.counts.lock();
        (counts.open, counts.by_network.len())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.slots.counts.lock();
        counts.open -= 1;
        let Some(network) = self.network else { return };
        if let Entry::Occupied(mut entry) = counts.by_network.entry(network) {
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

    fn limits(connections: usize, connections_per_address: usize) -> ListenerLimits {
        ListenerLimits {
            connections,
            connections_per_address,
            ..ListenerLimits::default()
        }
    }

    // Proves A13.
    #[test]
    fn connection_caps_hold_and_slots_are_returned() {
        let slots = Arc::new(ConnectionSlots::default());
        let (one, two): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let limits = limits(3, 2);
        let take = |address| slots.take(address, &limits, &[]);
        let a = take(one).unwrap();
        let _b = take(one).unwrap();
        assert_eq!(take(one).unwrap_err(), NoSlot::Address);
        let _c = take(two).unwrap();
        assert_eq!(take(two).unwrap_err(), NoSlot::Total);
        drop(a);
        let d = take(one).unwrap();
        drop(d);
        assert_eq!(slots.open(), (2, 2));
    }

    // Proves A13.
    #[test]
    fn addresses_of_one_ipv6_network_share_connection_slots() {
        let slots = Arc::new(ConnectionSlots::default());
        let limits = limits(100, 2);
        let take = |text: &str| slots.take(text.parse().unwrap(), &limits, &[]);
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
    fn loopback_and_trusted_proxies_are_bound_by_the_total_only() {
        let slots = Arc::new(ConnectionSlots::default());
        let (limits, trusted) = (limits(5, 1), ["10.0.0.0/8".parse().unwrap()]);
        let take = |text: &str| slots.take(text.parse().unwrap(), &limits, &trusted);
        for proxy in ["127.0.0.1", "::1", "10.2.3.4", "::ffff:10.2.3.4"] {
            let held: Vec<_> = (0..5).map(|_| take(proxy).unwrap()).collect();
            assert_eq!(take(proxy).unwrap_err(), NoSlot::Total, "{proxy}");
            drop(held);
        }
        let held = take("11.2.3.4").unwrap();
        assert_eq!(take("11.2.3.4").unwrap_err(), NoSlot::Address);
        drop(held);
        assert_eq!(slots.open(), (0, 0));
    }

    #[test]
    fn refusals_are_counted_until_the_next_warning() {
        let (mut count, now) = (RefusedConnections::default(), Instant::now());
        assert_eq!(count.add(now), Some(1));
        assert_eq!(count.add(now), None);
        assert_eq!(count.add(now + WARNING_INTERVAL / 2), None);
        assert_eq!(count.add(now + WARNING_INTERVAL), Some(3));
    }
}
