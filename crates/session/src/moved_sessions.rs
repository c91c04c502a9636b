//! The sessions that move to a successor process at a graceful restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_core::SessionKey;
use weir_core::content_version::ContentVersion;
use weir_core::network::SenderNetwork;
use weir_core::port::RecordKey;

use crate::sessions::session_table::LegacySessions;

/// The state of a session that is not in its record.
#[derive(Clone, Debug)]
pub struct MovedSession {
    /// The key of the session.
    pub key: SessionKey,
    /// The resources that its client subscribed to, under the client's own URIs.
    pub subscriptions: Vec<String>,
    /// The last version of each list that its client was notified of, by list.
    pub notified_lists: Vec<Option<ContentVersion>>,
    /// The network that opened it, if its principal is the anonymous one.
    pub network: Option<SenderNetwork>,
}

impl MovedSession {
    pub(crate) fn new(key: SessionKey) -> Self {
        Self {
            key,
            subscriptions: Vec::new(),
            notified_lists: Vec::new(),
            network: None,
        }
    }
}

/// The sessions of this process, for a graceful restart.
#[derive(Clone, Debug)]
pub struct MovingSessions(Arc<LegacySessions>);

impl MovingSessions {
    /// These sessions.
    #[must_use]
    pub fn new(sessions: Arc<LegacySessions>) -> Self {
        Self(sessions)
    }

    /// Notes that the sessions are the successor's from now on: requests that change more of one
    /// than its record are to be made there.
    pub fn begin_move(&self) {
        self.0.has_moved.store(true, Ordering::Release);
    }

    /// Copies the state of all sessions beside their records.
    #[must_use]
    pub fn copy_all(&self) -> Vec<MovedSession> {
        let mut all = HashMap::new();
        self.0.describe_moving(&mut all);
        all.into_values().collect()
    }

    /// Takes over a session of the predecessor. Its subscriptions begin again when its client opens
    /// its stream.
    pub fn take_over(&self, session: MovedSession) {
        self.0.adopt(session);
    }

    /// Removes a session whose record the predecessor has removed here from the sessions of its
    /// network. The predecessor has the rest of its state.
    pub fn leave_network(&self, record: &RecordKey) {
        self.0.leave_network(record);
    }
}
