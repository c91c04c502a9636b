//! The hand-over of sessions to another process and from another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use serde::{Deserialize, Serialize};
use weir_core::port::doubled;
use weir_era::upstream_messages;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::session_log_level::SessionLogLevel;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::LogLevel;

use crate::session_channel::SessionChannel;
use crate::standing_stream_slots::StandingStreamSlots;
use crate::upstream_session::{UpstreamSession, UpstreamSessionClient};

/// An open session as one process describes it to the next. The id is a secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ExportedHttpSession {
    id: String,
    /// The relevant parts of the answer to `initialize`, as JSON.
    initialized: String,
    level: Option<String>,
    /// True if its standing stream was read, in that process or one before.
    is_read: bool,
}

/// The first and the longest wait before the standing stream of an imported session is requested
/// again; the wait doubles.
const FIRST_STREAM_WAIT: Duration = Duration::from_secs(1);
const LAST_STREAM_WAIT: Duration = Duration::from_secs(30);

impl UpstreamSession {
    /// Describes the session for the next process, which ends it from now on. Absent for a session
    /// without an id, which that process cannot name, and for one that is over.
    pub(crate) fn export(&self) -> Option<ExportedHttpSession> {
        let id = self
            .channel
            .id()
            .filter(|_| !self.over().is_cancelled())?
            .to_str()
            .ok()?
            .to_owned();
        let initialized =
            upstream_messages::initialize_result(self.dialect.revision(), &self.about);
        let level = self.level.get().map(|level| level.as_str().to_owned());
        let is_read = self.hand_over();
        Some(ExportedHttpSession {
            id,
            initialized: String::from_utf8(initialized.into()).ok()?,
            level,
            is_read,
        })
    }

    /// Leaves the session to another process. The standing stream ends, or with the last call here
    /// that may be asked on it. True if it was read, here or in a process before.
    pub(crate) fn hand_over(&self) -> bool {
        self.channel.leave();
        let is_read = self.was_read || self.channel.is_reading();
        match &self.standing {
            Some(standing) => standing.stop_after_last_call(&self.channel),
            None => self.channel.stop_listening(),
        }
        is_read
    }

    /// Takes over a session that another process described; absent if this one has no such
    /// revision.
    pub(crate) fn import(
        context: &Arc<UpstreamContext>,
        http: &AuthorizedHttpClient,
        behind: UpstreamSessionClient,
        exported: ExportedHttpSession,
    ) -> Option<Self> {
        let id = HeaderValue::from_str(&exported.id).ok()?;
        let channel =
            |revision| SessionChannel::new(context.clone(), http.clone(), Some(id), revision);
        let mut session = Self::new(context, behind, channel, &exported.initialized.into()).ok()?;
        let level = exported.level.and_then(|level| LogLevel::parse(&level));
        session.level = SessionLogLevel::new(level);
        session.was_read = exported.is_read;
        Some(session)
    }

    /// True if this is the session that another process described.
    pub(crate) fn is_described_by(&self, exported: &ExportedHttpSession) -> bool {
        self.channel.id().is_some_and(|id| *id == *exported.id)
    }

    /// Marks that the session has no caller's client yet.
    pub(crate) fn waiting_for_caller(mut self) -> Self {
        self.waits_for_caller = AtomicBool::new(true);
        self
    }

    /// Takes the client of the caller. True if the session waited for it.
    pub(crate) fn meet_caller(&self, own: &AuthorizedHttpClient) -> bool {
        let waits = &self.waits_for_caller;
        if !waits.load(Ordering::Relaxed) || !waits.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.channel.set_http(Arc::new(own.clone()));
        true
    }

    /// Opens the lists of an imported session. Calls in the previous process may have changed them.
    pub(crate) fn continue_lists(self: &Arc<Self>) {
        self.open_lists();
        if let Some(lists) = self.channel.lists() {
            lists.count_call();
        }
    }

    /// Reads the standing stream of an imported session. The previous process may still read it for
    /// as long as its calls run, and most servers allow only one reader.
    pub(crate) async fn reopen_standing_stream(self: Arc<Self>, slots: &StandingStreamSlots) {
        let Some((standing, permit)) = self.standing_stream(slots) else {
            return;
        };
        self.read_standing_stream(standing.clone(), permit).await;
        if !self.was_read || self.channel.is_reading() {
            return;
        }
        let session = Arc::downgrade(&self);
        self.context.tasks.spawn_endless(async move {
            for failures in 0.. {
                let wait = doubled(FIRST_STREAM_WAIT, failures, LAST_STREAM_WAIT);
                tokio::time::sleep(wait).await;
                let Some(session) = session.upgrade() else {
                    return;
                };
                if !session.channel.permits(permit) {
                    return;
                }
                session.read_standing_stream(standing.clone(), permit).await;
                if session.channel.is_reading() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
