//! The ports through which the client side reaches the rest of weir.

use std::fmt;
use std::sync::Arc;

use weir_core::Budgets;
use weir_core::port::{
    AuditLog, Authorizer, Clock, Limiter, MessageBus, Random, RecordStore, ReplayLog,
    ReplicaMailbox, Verifier,
};
use weir_core::session_notifier::SessionNotifier;
use weir_session::SessionPorts;

/// The ports that the client side needs.
#[derive(Clone)]
pub struct FrontPorts {
    /// Verifies credentials.
    pub verifier: Arc<dyn Verifier>,
    /// Decides if a principal may make a call.
    pub authorizer: Arc<dyn Authorizer>,
    /// Limits rates of requests.
    pub limiter: Arc<dyn Limiter>,
    /// Records decisions.
    pub audit: Arc<dyn AuditLog>,
    /// Stores legacy sessions.
    pub records: Arc<dyn RecordStore>,
    /// Carries cancellations and ended sessions to every replica.
    pub bus: Arc<dyn MessageBus>,
    /// Keeps the events that a client may still need after it lost its connection.
    pub replays: Arc<dyn ReplayLog>,
    /// Carries messages of upstreams to clients of sessions outside of their calls.
    pub bells: Arc<SessionNotifier>,
    /// Carries answers to questions of another replica.
    pub mailbox: Arc<dyn ReplicaMailbox>,
    /// The memory and descriptors that the whole process may use.
    pub budgets: Budgets,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes.
    pub random: Arc<dyn Random>,
}

impl FrontPorts {
    /// The ports of sessions.
    pub(crate) fn of_sessions(&self) -> SessionPorts {
        SessionPorts {
            records: self.records.clone(),
            bus: self.bus.clone(),
            replays: self.replays.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
        }
    }
}

impl fmt::Debug for FrontPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontPorts").finish_non_exhaustive()
    }
}
