//! The ports and limits of sessions.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{Clock, MessageBus, Random, RecordStore, ReplayLog};

use crate::session_ids::SessionIds;

/// The ports that sessions need.
#[derive(Clone, Debug)]
pub struct SessionPorts {
    /// Writes and reads the ids of sessions.
    pub ids: SessionIds,
    /// Stores the records of sessions.
    pub records: Arc<dyn RecordStore>,
    /// Carries cancellations, answers and ended sessions to every replica.
    pub bus: Arc<dyn MessageBus>,
    /// Keeps the events that a client may still need after it lost its connection.
    pub replays: Arc<dyn ReplayLog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes.
    pub random: Arc<dyn Random>,
}

/// Limits of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions of older clients.
    pub sessions: usize,
    /// Sessions of one principal. Of the anonymous principal, a network may have as many as are
    /// free, and at least this number, or half of all sessions if that is less.
    pub sessions_per_principal: usize,
    /// The longest time that a legacy session lives unused.
    pub session_idle: Duration,
    /// The longest life of a legacy session.
    pub session_age: Duration,
    /// Calls that run on without their connection, in one session.
    pub detached_per_session: usize,
    /// Calls that run on without their connection, overall.
    pub detached: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            sessions: 200_000,
            sessions_per_principal: 100,
            session_idle: Duration::from_secs(30 * 60),
            session_age: Duration::from_secs(24 * 3600),
            detached_per_session: 32,
            detached: 4096,
        }
    }
}
