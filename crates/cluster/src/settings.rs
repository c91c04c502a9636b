//! The settings of the requests between replicas.

use std::net::SocketAddr;
use std::sync::Arc;

/// The settings of the requests between replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The address that the cluster listener is bound to.
    pub listen: SocketAddr,
    /// The `host:port` that other replicas reach it at. Absent: the bound address.
    pub advertise: Option<Arc<str>>,
}
