//! The limit of the process's file descriptors; some of them are kept in reserve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry::KeyValue;

use crate::telemetry::instruments;

/// The file descriptors of the process. Connections of clients and to upstreams are counted here;
/// all other open descriptors are observed from time to time. Some are kept for operators, reloads
/// and files.
#[derive(Clone, Debug)]
pub struct Descriptors(Arc<Counts>);

#[derive(Debug)]
struct Counts {
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
pub enum Side {
    /// A connection of a client.
    Front,
    /// A connection to an upstream.
    Upstream,
}

/// The descriptor of one connection. Dropping it gives it back.
#[derive(Debug)]
pub struct Descriptor {
    counts: Arc<Counts>,
    side: Side,
}

impl Default for Descriptors {
    /// No limit is known yet.
    fn default() -> Self {
        let zero = || AtomicUsize::new(0);
        let limit = AtomicUsize::new(usize::MAX);
        Self(Arc::new(Counts {
            limit,
            others: zero(),
            clients: zero(),
            upstreams: zero(),
        }))
    }
}

impl Descriptors {
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
    pub fn take(&self, side: Side) -> Option<Descriptor> {
        let counts = &self.0;
        let own = counts.of(side).fetch_add(1, Ordering::Relaxed) + 1;
        let descriptor = Descriptor {
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

impl Counts {
    fn of(&self, side: Side) -> &AtomicUsize {
        match side {
            Side::Front => &self.clients,
            Side::Upstream => &self.upstreams,
        }
    }

    fn counted(&self) -> usize {
        self.clients.load(Ordering::Relaxed) + self.upstreams.load(Ordering::Relaxed)
    }
}

impl Side {
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

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.counts.of(self.side).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_whoever_opens_connections() {
        let descriptors = Descriptors::default();
        descriptors.observe(1000, 136);
        let take = |side| std::iter::from_fn(|| descriptors.take(side)).collect::<Vec<_>>();
        let clients = take(Side::Front);
        assert_eq!(
            clients.len(),
            750,
            "of what is left beside 64 and what was open"
        );
        let upstreams = take(Side::Upstream);
        assert_eq!(upstreams.len(), 50);
        descriptors.observe(1000, 136 + 800);
        assert!(descriptors.take(Side::Front).is_none());
        drop((clients, upstreams));
        descriptors.observe(1000, 136);
        assert_eq!(take(Side::Upstream).len(), 600);
    }
}
