//! The limit of the process's file descriptors; some of them are kept in reserve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry::KeyValue;

use crate::telemetry::instruments;

/// The file descriptors of the process. Connections of clients and to upstreams are counted here;
/// all other open descriptors are observed from time to time. Some are kept for operators, reloads
/// and files.
#[derive(Clone, Debug)]
pub struct DescriptorBudget(Arc<DescriptorCounts>);

#[derive(Debug)]
struct DescriptorCounts {
    /// The descriptors that the process may open.
    limit: AtomicUsize,
    /// The descriptors that were open beside the counted connections.
    others: AtomicUsize,
    clients: AtomicUsize,
    upstreams: AtomicUsize,
}

/// Descriptors that no connection gets.
const RESERVED: usize = 64;

/// The side of weir that a connection is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSide {
    /// A connection of a client.
    Front,
    /// A connection to an upstream.
    Upstream,
}

/// The descriptor of one connection. Dropping it gives it back.
#[derive(Debug)]
pub struct DescriptorPermit {
    counts: Arc<DescriptorCounts>,
    side: ConnectionSide,
}

impl Default for DescriptorBudget {
    /// No limit is known yet.
    fn default() -> Self {
        let zero = || AtomicUsize::new(0);
        let limit = AtomicUsize::new(usize::MAX);
        Self(Arc::new(DescriptorCounts {
            limit,
            others: zero(),
            clients: zero(),
            upstreams: zero(),
        }))
    }
}

impl DescriptorBudget {
    /// Records the limit of the process, and the count of descriptors that are open now.
    pub fn observe(&self, limit: usize, open: usize) {
        let counted = self.0.counted();
        self.0.limit.store(limit, Ordering::Relaxed);
        self.0
            .others
            .store(open.saturating_sub(counted), Ordering::Relaxed);
    }

    /// Takes a descriptor for a connection; the reserve is never touched. Neither side gets all:
    /// without the other it is of no use.
    #[must_use]
    pub fn take(&self, side: ConnectionSide) -> Option<DescriptorPermit> {
        let counts = &self.0;
        let own = counts.of(side).fetch_add(1, Ordering::Relaxed) + 1;
        let descriptor = DescriptorPermit {
            counts: counts.clone(),
            side,
        };
        let left = counts
            .limit
            .load(Ordering::Relaxed)
            .saturating_sub(counts.others.load(Ordering::Relaxed));
        let left = left.saturating_sub(RESERVED);
        if counts.counted() <= left && own <= left - side.kept_for_the_other(left) {
            return Some(descriptor);
        }
        instruments()
            .descriptors_refused
            .add(1, &[KeyValue::new("side", side.word())]);
        None
    }
}

impl DescriptorCounts {
    fn of(&self, side: ConnectionSide) -> &AtomicUsize {
        match side {
            ConnectionSide::Front => &self.clients,
            ConnectionSide::Upstream => &self.upstreams,
        }
    }

    fn counted(&self) -> usize {
        self.clients.load(Ordering::Relaxed) + self.upstreams.load(Ordering::Relaxed)
    }
}

impl ConnectionSide {
    /// The least share of the other side: clients are many, and one of them may need no connection
    /// to an upstream.
    fn kept_for_the_other(self, left: usize) -> usize {
        match self {
            Self::Front => left / 16,
            Self::Upstream => left / 4,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Upstream => "upstream",
        }
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.counts.of(self.side).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_connection_side_can_exhaust_the_descriptors() {
        let descriptors = DescriptorBudget::default();
        descriptors.observe(1000, 136);
        let take = |side| std::iter::from_fn(|| descriptors.take(side)).collect::<Vec<_>>();
        let clients = take(ConnectionSide::Front);
        assert_eq!(
            clients.len(),
            750,
            "of what is left beside 64 and what was open"
        );
        let upstreams = take(ConnectionSide::Upstream);
        assert_eq!(upstreams.len(), 50);
        descriptors.observe(1000, 136 + 800);
        assert!(descriptors.take(ConnectionSide::Front).is_none());
        drop((clients, upstreams));
        descriptors.observe(1000, 136);
        assert_eq!(take(ConnectionSide::Upstream).len(), 600);
    }
}
