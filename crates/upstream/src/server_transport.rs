//! The transport to one server: Streamable HTTP, or a child process.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use weir_core::reply::Reply;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListWatch, OutboundCall, ProcessStart, ResourceUpdates,
    TaskNotifications,
};
use weir_core::{CapabilityClass, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_http::HttpUpstream;
use weir_upstream_stdio::StdioUpstream;
use weir_wire::Revision;

/// The transport to the server.
#[derive(Debug)]
pub(crate) enum ServerTransport {
    Http(Box<HttpUpstream>),
    Stdio(Arc<StdioUpstream>),
}

impl ServerTransport {
    /// Makes one attempt at a call. `again` is the proof of the attempt before.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
    ) -> Result<Reply, FailedAttempt> {
        match self {
            Self::Http(server) => server.call(outbound, again).await,
            Self::Stdio(server) => server.call(outbound).await,
        }
    }

    /// Returns the server's revision, once it is known.
    pub(crate) fn revision(&self) -> Option<Revision> {
        match self {
            Self::Http(server) => server.revision(),
            Self::Stdio(server) => server.revision(),
        }
    }

    /// Returns the server's revision for a client of this class.
    pub(crate) fn revision_for(&self, class: CapabilityClass) -> Option<Revision> {
        match self {
            Self::Http(server) => server.revision_for(class),
            Self::Stdio(server) => server.revision_for(class),
        }
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    pub(crate) fn second_revision(&self) -> Option<Revision> {
        match self {
            Self::Http(server) => server.second_revision(),
            Self::Stdio(server) => server.second_revision(),
        }
    }

    /// Marks the server as possibly replaced: its era is found out again.
    pub(crate) fn doubt_era(&self) {
        match self {
            Self::Http(server) => server.doubt_era(),
            Self::Stdio(server) => server.doubt_era(),
        }
    }

    /// Opens a watch of the server's lists.
    pub(crate) async fn watch(
        &self,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, FailedAttempt> {
        match self {
            Self::Http(server) => server.watch(class).await,
            Self::Stdio(server) => server.watch(class).await,
        }
    }

    /// Opens a subscription to updates of single resources.
    pub(crate) async fn updates(&self) -> Result<Box<dyn ResourceUpdates>, FailedAttempt> {
        match self {
            Self::Http(server) => server.updates().await,
            Self::Stdio(server) => server.updates().await,
        }
    }

    /// Subscribes to a task's status; absent if the server has no such subscription.
    pub(crate) async fn follow(&self, outbound: &OutboundCall) -> Option<TaskNotifications> {
        match self {
            Self::Http(server) => server.follow(outbound).await,
            Self::Stdio(server) => server.follow(outbound).await,
        }
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
    pub(crate) fn carries(&self) -> CapabilityClass {
        match self {
            Self::Http(server) => server.carries(),
            Self::Stdio(server) => server.carries(),
        }
    }

    /// True while it is unknown if a server without sessions so far has sessions as well.
    pub(crate) fn may_find_sessions(&self) -> bool {
        match self {
            Self::Http(server) => server.may_find_sessions(),
            Self::Stdio(server) => server.may_find_sessions(),
        }
    }

    /// Finds out, as this call would, if the server has sessions.
    pub(crate) async fn find_sessions(&self, outbound: &OutboundCall) {
        match self {
            Self::Http(server) => server.find_sessions(outbound).await,
            Self::Stdio(server) => server.find_sessions(outbound).await,
        }
    }

    /// Forwards a change of client sessions.
    pub(crate) fn forward_session_change(
        &self,
        sessions: &HashSet<SessionKey>,
        change: ClientSessionChange,
    ) {
        match self {
            Self::Http(server) => server.forward_session_change(sessions, change),
            Self::Stdio(server) => server.forward_session_change(sessions, change),
        }
    }

    /// Returns the number of open sessions or processes.
    pub(crate) fn sessions(&self) -> usize {
        match self {
            Self::Http(server) => server.sessions(),
            Self::Stdio(server) => server.processes(),
        }
    }

    /// Implements [`weir_core::upstream::Upstream::export_sessions`].
    pub(crate) async fn export_sessions(&self) -> Vec<HandoverSession> {
        match self {
            Self::Http(server) => server.export_sessions(),
            Self::Stdio(server) => server.export_children().await,
        }
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`].
    pub(crate) async fn import_session(&self, session: HandoverSession) {
        match self {
            Self::Http(server) => {
                server.import_session(&session.description);
            }
            Self::Stdio(server) => server.import_child(session).await,
        }
    }

    /// Returns the time limit for opening a session of a usual server, or a process.
    pub(crate) fn open_time(&self, usual: Duration) -> Duration {
        match self {
            Self::Http(_) => usual,
            // The requests after the start may take as long as with any server.
            Self::Stdio(server) => server.start_time() + usual,
        }
    }

    /// Returns the process that has not answered yet, for operators.
    pub(crate) fn starting(&self) -> Option<ProcessStart> {
        match self {
            Self::Http(_) => None,
            Self::Stdio(server) => server.starting(),
        }
    }

    /// Ends the processes once their running calls are done, at most `grace` from now.
    pub(crate) async fn replace_processes(&self, grace: Duration) {
        match self {
            Self::Http(_) => {}
            Self::Stdio(server) => server.replace_children(grace).await,
        }
    }

    /// Asks processes that left calls unanswered for a sign of life, and ends those without one.
    pub(crate) fn check_processes(&self) {
        match self {
            Self::Http(_) => {}
            Self::Stdio(server) => server.check_silent_children(),
        }
    }

    /// Asks the server for a sign of life with a request of weir's own. False if it gives none, or if
    /// no process runs.
    pub(crate) async fn answers(&self) -> bool {
        match self {
            Self::Http(server) => server.check().await.is_ok(),
            Self::Stdio(server) => server.answers().await,
        }
    }

    /// True if a process left a call unanswered and has been silent since.
    pub(crate) fn has_silent_process(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Stdio(server) => server.has_silent_child(),
        }
    }

    /// Ends all sessions or processes.
    pub(crate) async fn close(&self) {
        match self {
            Self::Http(server) => server.close().await,
            Self::Stdio(server) => server.close().await,
        }
    }
}
