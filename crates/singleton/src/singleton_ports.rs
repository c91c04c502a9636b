//! The ports of the upstreams that one replica runs for all.

use std::sync::Arc;
use std::time::Duration;

use weir_cluster::PeerForwarder;
use weir_core::Budgets;
use weir_core::port::{Clock, LeaseStore, Random, ReplicaId};
use weir_core::session_notifier::SessionNotifier;

/// The ports of the upstreams that one replica runs for all.
#[derive(Clone, Debug)]
pub struct SingletonPorts {
    /// The name of this replica.
    pub own: ReplicaId,
    /// The leases that all replicas share.
    pub leases: Arc<dyn LeaseStore>,
    /// The time of each lease. All replicas need the same.
    pub lease_time: Duration,
    /// The client of the other replicas.
    pub forwarder: Arc<PeerForwarder>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The randomness of tokens and spans.
    pub random: Arc<dyn Random>,
    /// The budgets of the whole process.
    pub budgets: Budgets,
    /// The standing streams of the clients of this replica.
    pub notifier: Arc<SessionNotifier>,
}
