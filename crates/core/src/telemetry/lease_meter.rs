//! The metrics of the leases of upstreams that one replica runs for all.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use opentelemetry::metrics::BoundCounter;
use parking_lot::Mutex;

use crate::names::UpstreamId;
use crate::telemetry::instruments;
use crate::telemetry::meters::upstream_label;

/// The present leases. There are two of one upstream while it is replaced by another of its name.
static LEASES: LazyLock<Mutex<Vec<Weak<LeaseMeter>>>> = LazyLock::new(Mutex::default);

/// The metrics of one lease. They are shown as long as this is alive.
pub struct LeaseMeter {
    upstream: UpstreamId,
    is_held: AtomicBool,
    changes: BoundCounter<u64>,
}

impl LeaseMeter {
    /// The meter of a lease that this replica does not hold.
    #[must_use]
    pub fn new(upstream: &UpstreamId) -> Arc<Self> {
        let changes = instruments()
            .upstream_lease_changes
            .bind(&[upstream_label(upstream)]);
        changes.add(0);
        let meter = Arc::new(Self {
            upstream: upstream.clone(),
            is_held: AtomicBool::new(false),
            changes,
        });
        let mut all = LEASES.lock();
        all.retain(|meter| meter.strong_count() > 0);
        all.push(Arc::downgrade(&meter));
        meter
    }

    /// Takes note that this replica holds the lease, or does not.
    pub fn set_held(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Counts a new epoch of the lease.
    pub fn count_change(&self) {
        self.changes.add(1);
    }
}

impl fmt::Debug for LeaseMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseMeter")
            .field("upstream", &self.upstream)
            .field("is_held", &self.is_held)
            .finish_non_exhaustive()
    }
}

/// Records the present leases, for a scrape. Returns their upstreams: the SDK keeps the series of
/// others, which are not shown any more.
#[must_use]
pub fn record_leases() -> HashSet<String> {
    let mut held: HashMap<UpstreamId, bool> = HashMap::new();
    for meter in LEASES.lock().iter().filter_map(Weak::upgrade) {
        *held.entry(meter.upstream.clone()).or_default() |= meter.is_held.load(Ordering::Relaxed);
    }
    for (upstream, is_held) in &held {
        instruments()
            .upstream_lease_held
            .record(u64::from(*is_held), &[upstream_label(upstream)]);
    }
    held.into_keys().map(|id| id.to_string()).collect()
}
