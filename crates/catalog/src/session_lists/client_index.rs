//! The lists of sessions by the client sessions that they serve.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use weir_core::call::SessionKey;

/// Weak references by client session: the upstreams' sessions own the lists.
pub(super) struct ClientIndex<T>(RwLock<HashMap<SessionKey, Vec<Weak<T>>>>);

impl<T> Default for ClientIndex<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T> ClientIndex<T> {
    /// The lists that serve a client session.
    pub(super) fn of(&self, client: &SessionKey) -> Vec<Arc<T>> {
        self.0
            .read()
            .get(client)
            .map(|lists| lists.iter().filter_map(Weak::upgrade).collect())
            .unwrap_or_default()
    }

    /// All lists; those that serve several client sessions come as often.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.0
            .read()
            .values()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(super) fn enter(&self, client: SessionKey, lists: Weak<T>) {
        self.0.write().entry(client).or_default().push(lists);
    }

    /// Removes the lists of a session that is being dropped from the client sessions that it
    /// served.
    pub(super) fn leave(&self, clients: &HashSet<SessionKey>) {
        let mut by_client = self.0.write();
        for client in clients {
            let Some(lists) = by_client.get_mut(client) else {
                continue;
            };
            lists.retain(|lists| lists.strong_count() > 0);
            if lists.is_empty() {
                by_client.remove(client);
            }
        }
    }

    /// Removes client sessions that ended. Returns each with the lists that served it.
    pub(super) fn remove(&self, sessions: &HashSet<SessionKey>) -> Vec<(SessionKey, Vec<Weak<T>>)> {
        let mut by_client = self.0.write();
        sessions
            .iter()
            .filter_map(|client| Some((*client, by_client.remove(client)?)))
            .collect()
    }
}
