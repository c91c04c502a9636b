//! The sessions of clients that move to the process which takes this one's place.

use std::collections::HashMap;
use std::sync::Arc;

use weir_core::SessionKey;
use weir_core::catalog::Version;
use weir_core::network::SenderNetwork;

use crate::stack::Shared;

/// The state of a session that is not in its record.
#[derive(Clone, Debug)]
pub struct MovedSession {
    /// The session.
    pub key: SessionKey,
    /// The resources of whose updates its client is told, under the client's own names.
    pub subscriptions: Vec<String>,
    /// The versions of the lists of which its client was told last, by list.
    pub told_lists: Vec<Option<Version>>,
    /// The network that opened it, where its principal is the anonymous one.
    pub network: Option<SenderNetwork>,
}

impl MovedSession {
    pub(crate) fn new(key: SessionKey) -> Self {
        Self {
            key,
            subscriptions: Vec::new(),
            told_lists: Vec::new(),
            network: None,
        }
    }
}

/// The sessions of the client side, for a hand-over.
#[derive(Clone)]
pub struct MovingSessions(pub(crate) Arc<Shared>);

impl MovingSessions {
    /// Copies the state of all sessions that have some.
    #[must_use]
    pub fn leave(&self) -> Vec<MovedSession> {
        let mut all = HashMap::new();
        self.0.sessions.describe(&mut all);
        all.into_values().collect()
    }

    /// Takes the state of a session of the predecessor. Its subscriptions begin again when its
    /// client opens its stream.
    pub fn take(&self, session: MovedSession) {
        self.0.sessions.adopt(session);
    }
}

impl std::fmt::Debug for MovingSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MovingSessions")
    }
}
