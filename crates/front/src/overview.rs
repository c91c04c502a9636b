//! The client side as operators see it: sessions, streams and clients, and actions to end them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::SystemTime;

use weir_core::port::RecordKey;
use weir_core::{Principal, SessionKey};
use weir_era::session::LegacySessionRecord;
use weir_layers::state::FrontState;
use weir_session::{ClientSeen, StreamSeen, session_key};
use weir_wire::Revision;

/// A view of the client side. Clones share it.
#[derive(Clone)]
pub struct FrontOverview(pub(crate) Arc<FrontState>);

/// An open session.
#[derive(Clone, Debug)]
pub struct SessionSeen {
    /// Identifies the session, and grants no access.
    pub key: SessionKey,
    /// The owner of the session.
    pub principal: Principal,
    /// The negotiated revision.
    pub revision: Revision,
    /// The time it began.
    pub began: SystemTime,
    /// The claimed name and version of its client, if this replica still knows it.
    pub software: Option<(String, String)>,
    /// Calls that run in it on this replica.
    pub calls: usize,
    /// True if its GET stream is open on this replica.
    pub stream: bool,
    /// The number of its subscribed resources.
    pub subscriptions: usize,
}

impl FrontOverview {
    /// The newest open sessions, at most `most`, and the number of all.
    #[must_use]
    pub fn sessions(&self, most: usize) -> (usize, Vec<SessionSeen>) {
        let mut all = Vec::new();
        self.0.ports.records.visit(&mut |key, value| {
            all.extend(
                LegacySessionRecord::decode(value)
                    .map(|session| (session_key(&key.id), key.principal.clone(), session)),
            );
        });
        let total = all.len();
        all.sort_by_key(|(key, _, session)| (Reverse(session.began), key.0));
        let seen = |(key, principal, session): (SessionKey, Principal, LegacySessionRecord)| {
            let (calls, stream, subscriptions) = self.0.sessions.local_counts(&key);
            let software = self.0.known_clients.of_session(&key);
            let (revision, began) = (session.revision, session.began);
            SessionSeen {
                key,
                principal,
                revision,
                began,
                software,
                calls,
                stream,
                subscriptions,
            }
        };
        (total, all.into_iter().take(most).map(seen).collect())
    }

    /// Ends a session and its local state; returns its owner, if it existed.
    pub async fn end_session(&self, key: SessionKey) -> Option<Principal> {
        let mut found: Option<(RecordKey, LegacySessionRecord)> = None;
        self.0.ports.records.visit(&mut |record, value| {
            if session_key(&record.id) == key {
                found = LegacySessionRecord::decode(value).map(|session| (record.clone(), session));
            }
        });
        let (record, session) = found?;
        self.0
            .sessions
            .end(&record, &session)
            .await
            .then_some(record.principal)
    }

    /// The open streams.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamSeen> {
        self.0.streams.registry.all()
    }

    /// Ends the streams of a principal, gracefully; returns their number.
    #[must_use]
    pub fn end_streams(&self, digest: &[u8; 16]) -> usize {
        self.0.streams.registry.end_of_principal(digest)
    }

    /// The client programs that have used weir.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientSeen> {
        self.0.known_clients.all()
    }
}

impl std::fmt::Debug for FrontOverview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontOverview").finish_non_exhaustive()
    }
}
