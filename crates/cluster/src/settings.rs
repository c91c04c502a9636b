//! The settings of the requests between replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The settings of the requests between replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The address that the cluster listener is bound to.
    pub listen: SocketAddr,
    /// The `host:port` that other replicas reach it at. Absent: the bound address.
    pub advertise: Option<Arc<str>>,
    /// The time of the lease of an upstream that one replica runs for all.
    pub lease: Duration,
}

impl ClusterSettings {
    /// The default of [`Self::lease`]: a killed replica is replaced within it, and an outage of the
    /// store for two thirds of it is not noticed.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);
}
