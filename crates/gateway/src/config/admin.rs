//! Where operators connect and who they are, as settings.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

/// The operators' listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlan {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The tokens of operators.
    pub keys: Vec<OperatorKey>,
    /// The scope that makes the bearer of an access token an operator; `None`: no access token
    /// does.
    pub scope: Option<Arc<str>>,
    /// Whether whoever reaches the listener may read the metrics.
    pub open_metrics: bool,
    /// Names in `Host` that are taken beside addresses and `localhost`, lower case, each with a
    /// port or without.
    pub hosts: Vec<String>,
}

impl AdminPlan {
    /// Open to whoever reaches it.
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

    /// Whether anybody has to show who they are.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        !self.keys.is_empty() || self.scope.is_some()
    }
}

/// A token of an operator, by its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorKey {
    /// Who it is.
    pub name: Arc<str>,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// When it ends.
    pub expires: Option<SystemTime>,
}

impl fmt::Debug for OperatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorKey({}, <digest>)", self.name)
    }
}
