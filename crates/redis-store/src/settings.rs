//! The settings of the shared store.

use std::fmt;
use std::time::Duration;

/// The settings of the shared store.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// The URLs, `redis://` or `rediss://`, with their credentials: of the server, of the nodes of a
    /// cluster, or of the sentinels. At least one.
    pub urls: Vec<String>,
    /// The kind of servers at the URLs.
    pub topology: RedisTopology,
    /// Certificate authorities for `rediss://` in PEM, instead of those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The beginning of every key. Gateways with different names share no state.
    pub namespace: String,
    /// The longest time that a request of a client waits for one command.
    pub command_timeout: Duration,
}

/// The kind of servers at the URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisTopology {
    /// One server.
    Single,
    /// Sentinels, which know the current primary server.
    Sentinel {
        /// The name of the primary server at the sentinels.
        primary: String,
    },
    /// Nodes of a cluster.
    Cluster,
}

/// Without the URLs, which may have passwords.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("topology", &self.topology)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
