//! The ports and shared parts of the process that upstreams are built with.

use std::sync::Arc;

use weir_core::Budgets;
use weir_core::port::SessionListRegistry;
use weir_core::port::{Clock, Random};
use weir_core::session_notifier::SessionNotifier;
use weir_process::keeper::ChildKeeper;
use weir_upstream_core::upstream_context::ContextPorts;

/// The ports that upstreams use.
#[derive(Clone, Debug)]
pub struct UpstreamPorts {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes, for jitter.
    pub random: Arc<dyn Random>,
    /// The notifiers of client sessions, for messages of servers outside of calls.
    pub notifier: Arc<SessionNotifier>,
    /// The known lists of single sessions.
    pub session_lists: Arc<dyn SessionListRegistry>,
    /// The process that starts stdio servers and ends them with weir.
    pub keeper: Arc<ChildKeeper>,
    /// The budgets of the whole process.
    pub budgets: Budgets,
}

impl UpstreamPorts {
    /// Returns the ports that every part of an upstream may use.
    pub(crate) fn of_context(&self) -> ContextPorts {
        ContextPorts {
            clock: self.clock.clone(),
            random: self.random.clone(),
            notifier: self.notifier.clone(),
            session_lists: self.session_lists.clone(),
            budgets: self.budgets.clone(),
        }
    }
}
