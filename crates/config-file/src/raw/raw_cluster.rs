//! `cluster`: the listener for other replicas.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::raw::Time;

/// The listener for other replicas. They forward requests to the replica that owns a session, over
/// HTTP/2 with mutual TLS; the certificates follow from `keys`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawCluster {
    /// The `address:port` that other replicas connect to. Required with a shared `store`.
    pub listen: Option<String>,
    /// The `host:port` at which other replicas reach this one. Default: the address of `listen`.
    /// Required if that is `0.0.0.0` or `[::]`.
    pub advertise: Option<String>,
    /// The time of the lease of an upstream with `instances: one`. After so long, another replica
    /// takes the place of a killed one. It ends its own children after three quarters, if it cannot
    /// renew the lease. The same in all replicas; 1 second to 5 minutes. Default `15s`.
    pub lease: Option<Time>,
}
