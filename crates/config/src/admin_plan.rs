//! The settings of the operators' listener and credentials.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

/// The path of the operators' listener for liveness probes, of orchestrators and `weir health`.
pub const LIVENESS_PATH: &str = "/healthz";
/// The path of the operators' listener for readiness probes.
pub const READINESS_PATH: &str = "/readyz";

/// The operators' listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlan {
    /// The address of the listener.
    pub listen: SocketAddr,
    /// The tokens of operators.
    pub keys: Vec<OperatorKey>,
    /// The scope that an operator's access token needs. `None`: access tokens are not accepted.
    pub scope: Option<Arc<str>>,
    /// True if callers without credentials may read the metrics.
    pub open_metrics: bool,
    /// Accepted names in `Host` besides addresses and `localhost`: lower case, each with a
    /// port or without.
    pub hosts: Vec<String>,
}

impl AdminPlan {
    /// Creates the settings of a listener without credentials.
    #[must_use]
    pub fn open(listen: SocketAddr) -> Self {
        Self {
            listen,
            keys: Vec::new(),
            scope: None,
            open_metrics: true,
            hosts: Vec::new(),
        }
    }

    /// Reports if operators need credentials.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        !self.keys.is_empty() || self.scope.is_some()
    }
}

/// An operator's token, by its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorKey {
    /// The name of the operator.
    pub name: Arc<str>,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// The expiry.
    pub expires: Option<SystemTime>,
}

impl fmt::Debug for OperatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorKey({}, <digest>)", self.name)
    }
}
