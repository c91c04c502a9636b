//! The server of an upstream as a whole: one URL or child process, or several URLs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::upstream::{
    ClientSessionChange, HandoverSession, InstanceHealth, OutboundCall, ProcessStart,
};
use weir_core::{CapabilityClass, SessionKey};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_http::HttpUpstream;
use weir_wire::Revision;

use crate::instances::ServerInstances;
use crate::server_transport::ServerTransport;
use crate::single_server::SingleServer;

/// The server of an upstream.
#[derive(Debug)]
pub(crate) enum CalledServer {
    /// A server behind one URL, or a child process.
    One(Arc<SingleServer>),
    /// A server with several URLs.
    Several(ServerInstances),
}

impl CalledServer {
    /// The parts of the upstream, which all URLs share.
    pub(crate) fn context(&self) -> &Arc<UpstreamContext> {
        match self {
            Self::One(one) => &one.context,
            Self::Several(all) => &all.context,
        }
    }

    /// True for a server behind URLs, false for a child process.
    pub(crate) fn is_http(&self) -> bool {
        match self {
            Self::One(one) => matches!(one.transport, ServerTransport::Http(_)),
            Self::Several(_) => true,
        }
    }

    /// True if calls use the accounts of their callers. All URLs have the same accounts.
    pub(crate) fn uses_callers_accounts(&self) -> bool {
        match self {
            Self::One(one) => match &one.transport {
                ServerTransport::Http(http) => http.uses_callers_accounts(),
                ServerTransport::Stdio(_) => false,
            },
            Self::Several(all) => all.iter().any(|one| one.http.uses_callers_accounts()),
        }
    }

    /// True while calls fail at once.
    pub(crate) fn fails_at_once(&self) -> bool {
        match self {
            Self::One(one) => one.breaker.is_open(),
            Self::Several(all) => all.fail_at_once(),
        }
    }

    /// True if the server cannot be reached, or hangs; of several URLs, if none of them takes calls.
    pub(crate) fn is_down(&self) -> bool {
        match self {
            Self::One(one) => one.breaker.is_down(),
            Self::Several(all) => all.are_down(),
        }
    }

    /// Returns the time at which [`Self::is_down`] changed last.
    pub(crate) fn down_changed(&self) -> Option<SystemTime> {
        let changed = match self {
            Self::One(one) => one.breaker.changed(),
            Self::Several(all) => all.down_changed(),
        }?;
        let clock = &self.context().clock;
        let age = clock.now().saturating_sub(changed);
        clock.wall().checked_sub(age)
    }

    /// Returns the server's revision, once it is known; of several URLs, that of the watched one.
    pub(crate) fn revision(&self) -> Option<Revision> {
        self.of_watched(ServerTransport::revision, HttpUpstream::revision)?
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    pub(crate) fn second_revision(&self) -> Option<Revision> {
        self.of_watched(
            ServerTransport::second_revision,
            HttpUpstream::second_revision,
        )?
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
    pub(crate) fn carries(&self) -> CapabilityClass {
        self.of_watched(ServerTransport::carries, HttpUpstream::carries)
            .unwrap_or(CapabilityClass::BASE)
    }

    /// True while it is unknown if a server without sessions so far has sessions as well; of
    /// several URLs, the watched one.
    pub(crate) fn may_find_sessions(&self) -> bool {
        self.of_watched(
            ServerTransport::may_find_sessions,
            HttpUpstream::may_find_sessions,
        )
        .unwrap_or(false)
    }

    /// Returns what is known of the only server, or of the watched one of several URLs.
    fn of_watched<T>(
        &self,
        of_one: fn(&ServerTransport) -> T,
        of_watched: fn(&HttpUpstream) -> T,
    ) -> Option<T> {
        match self {
            Self::One(one) => Some(of_one(&one.transport)),
            Self::Several(all) => all.watched().map(|one| of_watched(&one.http)),
        }
    }

    /// Finds out, as this call would, if the server has sessions.
    pub(crate) async fn find_sessions(&self, outbound: &OutboundCall) {
        match self {
            Self::One(one) => one.transport.find_sessions(outbound).await,
            Self::Several(all) => {
                if let Some(watched) = all.watched() {
                    watched.http.find_sessions(outbound).await;
                }
            }
        }
    }

    /// Forwards a change of client sessions.
    pub(crate) fn forward_session_change(
        &self,
        sessions: &HashSet<SessionKey>,
        change: ClientSessionChange,
    ) {
        match self {
            Self::One(one) => one.transport.forward_session_change(sessions, change),
            Self::Several(all) => all.forward_session_change(sessions, change),
        }
    }

    /// Returns the number of open sessions or processes.
    pub(crate) fn sessions(&self) -> usize {
        match self {
            Self::One(one) => one.transport.sessions(),
            Self::Several(all) => all.iter().map(|one| one.http.sessions()).sum(),
        }
    }

    /// Implements [`weir_core::upstream::Upstream::export_sessions`].
    pub(crate) async fn export_sessions(&self) -> Vec<HandoverSession> {
        match self {
            Self::One(one) => one.transport.export_sessions().await,
            Self::Several(all) => all.export_sessions(),
        }
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`].
    pub(crate) async fn import_session(&self, session: HandoverSession) {
        match self {
            Self::One(one) => one.transport.import_session(session).await,
            Self::Several(all) => all.import_session(&session.description),
        }
    }

    /// Returns the time limit for opening a session of a usual server, or a process.
    pub(crate) fn open_time(&self, usual: Duration) -> Duration {
        match self {
            Self::One(one) => one.transport.open_time(usual),
            Self::Several(_) => usual,
        }
    }

    /// Returns the process that has not answered yet, for operators.
    pub(crate) fn starting(&self) -> Option<ProcessStart> {
        match self {
            Self::One(one) => one.transport.starting(),
            Self::Several(_) => None,
        }
    }

    /// Returns the last failure's cause and its time: of several URLs, the latest of all.
    pub(crate) fn last_error(&self) -> Option<(String, SystemTime)> {
        match self {
            Self::One(one) => one.context.record.last_error(),
            Self::Several(all) => {
                let all = all.iter().filter_map(|one| one.context.record.last_error());
                all.max_by_key(|(_, at)| *at)
            }
        }
    }

    /// Describes the instances of a server with several URLs, for operators.
    pub(crate) fn instances(&self) -> Vec<InstanceHealth> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Several(all) => all.health(),
        }
    }

    /// Ends all sessions or processes.
    pub(crate) async fn close(&self) {
        match self {
            Self::One(one) => one.transport.close().await,
            Self::Several(all) => all.close().await,
        }
    }
}
