//! The ports through which the client side reaches the rest of weir.

use std::sync::Arc;

use weir_core::Budgets;
use weir_core::port::{
    AuditLog, Authorizer, Clock, Limiter, MessageBus, Random, RecordStore, ReplayLog,
    ReplicaDirectory, ReplicaId, Verifier,
};
use weir_core::session_notifier::SessionNotifier;
use weir_listen::{OtherProcess, RequestForwarder};
use weir_seal::Sealer;
use weir_session::{SessionIds, SessionPorts};

/// The ports that the client side needs.
#[derive(Clone, Debug)]
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
    pub notifier: Arc<SessionNotifier>,
    /// The name of this replica.
    pub replica: ReplicaId,
    /// The other replicas, if some share a store with this one.
    pub replicas: Option<ReplicaPorts>,
    /// The generation of this process: the number of graceful restarts before it.
    pub generation: u32,
    /// Sends requests to the process before this one, which has the name of this replica too.
    /// Absent in a process that cannot take over from another one.
    pub predecessor: Option<Arc<dyn RequestForwarder>>,
    /// Sends requests to the process that replaces this one, likewise. Absent in a process that
    /// cannot be replaced.
    pub successor: Option<Arc<dyn RequestForwarder>>,
    /// The memory and descriptors that the whole process may use.
    pub budgets: Budgets,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes.
    pub random: Arc<dyn Random>,
}

/// The ports to the other replicas.
#[derive(Clone, Debug)]
pub struct ReplicaPorts {
    /// The replicas that are there.
    pub directory: Arc<dyn ReplicaDirectory>,
    /// Sends them requests that they own the subject of.
    pub forwarder: Arc<dyn RequestForwarder>,
}

impl FrontPorts {
    /// True if another replica of this name may answer a request, as far as this one knows.
    pub fn may_answer(&self, replica: &ReplicaId) -> bool {
        self.replicas
            .as_ref()
            .is_some_and(|replicas| replicas.directory.may_answer(replica))
    }

    /// True if another replica of this name may run, though it may not answer now: the registry lists
    /// it, and no other one at its address.
    pub fn may_run(&self, replica: &ReplicaId) -> bool {
        let Some(replicas) = &self.replicas else {
            return false;
        };
        if replicas.directory.may_answer(replica) {
            return true;
        }
        let all = replicas.directory.replicas();
        let listed = all.iter().find(|seen| seen.id == *replica);
        listed.is_some_and(|listed| {
            let mut others = all.iter().filter(|seen| seen.id != *replica);
            others.all(|other| other.address != listed.address)
        })
    }

    /// True if a request can be sent to another process: another replica, or one before or after
    /// this one.
    pub fn may_forward(&self) -> bool {
        let processes = [OtherProcess::Predecessor, OtherProcess::Successor];
        let takes_one = |process| self.process(process).is_some();
        self.replicas.is_some() || processes.into_iter().any(takes_one)
    }

    /// The forwarder to another process of a graceful restart, while that process takes requests.
    pub fn process(&self, process: OtherProcess) -> Option<&Arc<dyn RequestForwarder>> {
        let forwarder = match process {
            OtherProcess::Predecessor => &self.predecessor,
            OtherProcess::Successor => &self.successor,
        };
        forwarder
            .as_ref()
            .filter(|process| process.takes_requests())
    }

    /// The ports of sessions, whose ids name this replica if there are others.
    pub(crate) fn of_sessions(&self, sealer: &Sealer) -> SessionPorts {
        let ids = match &self.replicas {
            None => SessionIds::Random,
            Some(_) => SessionIds::sealed(sealer.clone(), self.replica.clone()),
        };
        SessionPorts {
            ids,
            records: self.records.clone(),
            bus: self.bus.clone(),
            replays: self.replays.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
        }
    }
}
