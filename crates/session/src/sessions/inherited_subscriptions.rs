//! Subscriptions of sessions that came from another process or replica, or began with other claims
//! of their clients. They begin again when the clients open their streams.
//!
//! A subscription is inherited until it is renewed or its renewal has failed. So a further process
//! or replica takes over those that are not renewed yet, and the client can end them.

use std::sync::Arc;

use weir_catalog::UpdateInbox;
use weir_core::{Principal, SessionKey};

use crate::sessions::inherited_uris::InheritedUris;
use crate::sessions::local_session::SubscribedResource;
use crate::sessions::session_guards::SubscriptionGuard;
use crate::sessions::session_table::LegacySessions;

impl LegacySessions {
    /// Records the subscriptions that a session had in another process or replica.
    pub(super) fn inherit_subscriptions(&self, key: SessionKey, uris: Vec<String>) {
        if !uris.is_empty() {
            self.inherited_subscriptions
                .lock()
                .insert(key, InheritedUris::new(uris));
        }
    }

    /// Ends all subscriptions of a session, to be renewed by its client's present credentials, if
    /// one of them began with other claims. Returns true if it did.
    pub fn end_subscriptions_of_other_claims(&self, key: SessionKey, client: &Principal) -> bool {
        let mut shard = self.shard(&key);
        let Some(live) = shard.get_mut(&key) else {
            return false;
        };
        let is_of_client = |own: &SubscribedResource| own.subscriber.has_same_claims(client);
        if live.subscribed.values().all(is_of_client) {
            return false;
        }
        let ended = std::mem::take(&mut live.subscribed);
        let mut inherited = self.inherited_subscriptions.lock();
        let known = inherited.get(&key).map(|known| known.uris().to_vec());
        let mut uris = known.unwrap_or_default();
        let new = ended
            .keys()
            .filter(|uri| !uris.iter().any(|known| **known == ***uri));
        let new: Vec<String> = new.map(ToString::to_string).collect();
        uris.extend(new);
        // In place of a renewal that runs with the claims of before.
        inherited.insert(key, InheritedUris::new(uris));
        drop((inherited, shard));
        drop(ended);
        true
    }

    /// Begins to renew the inherited subscriptions of a session. Absent if it has none, or if they
    /// are being renewed.
    pub fn begin_renewal(self: &Arc<Self>, key: SessionKey) -> Option<SubscriptionRenewal> {
        let mut inherited = self.inherited_subscriptions.lock();
        let nth = inherited
            .get_mut(&key)?
            .begin_renewal(|| self.next_registration())?;
        Some(SubscriptionRenewal {
            sessions: self.clone(),
            key,
            nth,
        })
    }

    /// Removes an inherited subscription, for its renewal or for the client that ends it. Returns
    /// true if the session had it, and `renewal` still is the one that runs.
    pub(super) fn remove_inherited(
        &self,
        key: &SessionKey,
        uri: &str,
        renewal: Option<u64>,
    ) -> bool {
        let mut inherited = self.inherited_subscriptions.lock();
        let Some(of_session) = inherited.get_mut(key) else {
            return false;
        };
        let is_removed = of_session.remove(uri, renewal);
        if of_session.uris().is_empty() {
            inherited.remove(key);
        }
        is_removed
    }
}

/// The renewal of a session's inherited subscriptions, one after the other. After its drop another
/// one can begin.
#[derive(Debug)]
pub struct SubscriptionRenewal {
    sessions: Arc<LegacySessions>,
    key: SessionKey,
    nth: u64,
}

impl SubscriptionRenewal {
    /// The resource to subscribe to next, unless the client has ended its subscription. The caller
    /// removes it before the next one.
    pub fn next_uri(&self) -> Option<String> {
        let inherited = self.sessions.inherited_subscriptions.lock();
        let of_session = inherited.get(&self.key)?;
        of_session.next_uri(self.nth).cloned()
    }

    /// Registers a subscription in progress. Its guard stores it only while it is inherited.
    pub fn begin_subscription(&self) -> (UpdateInbox, SubscriptionGuard) {
        let (inbox, guard) = self.sessions.begin_subscription(self.key);
        (inbox, guard.for_renewal(self.nth))
    }

    /// Removes a subscription that is renewed or cannot be renewed.
    pub fn remove(&self, uri: &str) {
        self.sessions
            .remove_inherited(&self.key, uri, Some(self.nth));
    }
}

impl Drop for SubscriptionRenewal {
    fn drop(&mut self) {
        if let Some(of_session) = self
            .sessions
            .inherited_subscriptions
            .lock()
            .get_mut(&self.key)
        {
            of_session.end_renewal(self.nth);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::moved_sessions::{MovedSession, MovingSessions};
    use crate::sessions::test_sessions::{KEY, sessions};

    /// Sessions among which one has inherited these subscriptions.
    fn inherited(uris: &[&str]) -> Arc<LegacySessions> {
        let sessions = sessions();
        let subscriptions = uris.iter().map(ToString::to_string).collect();
        MovingSessions::new(sessions.clone()).take_over(MovedSession {
            subscriptions,
            ..MovedSession::new(KEY)
        });
        sessions
    }

    fn moved_subscriptions(sessions: &Arc<LegacySessions>) -> Vec<String> {
        let moved = MovingSessions::new(sessions.clone()).copy_all();
        let subscriptions = moved.into_iter().map(|moved| moved.subscriptions);
        subscriptions.flatten().collect()
    }

    #[test]
    fn subscription_is_inherited_until_its_renewal_has_ended() {
        let sessions = inherited(&["a", "b"]);
        let renewal = sessions.begin_renewal(KEY).unwrap();
        assert_eq!(renewal.next_uri().unwrap(), "a");
        assert_eq!(moved_subscriptions(&sessions), ["a", "b"]);
        assert_eq!(sessions.subscribed_uris(&KEY), ["a", "b"]);
        renewal.remove("a");
        assert_eq!(renewal.next_uri().unwrap(), "b");
        assert_eq!(moved_subscriptions(&sessions), ["b"]);
        renewal.remove("b");
        assert_eq!(renewal.next_uri(), None);
        assert!(sessions.inherited_subscriptions.lock().is_empty());
    }

    #[test]
    fn one_renewal_of_a_session_runs_at_a_time() {
        let sessions = inherited(&["a"]);
        let renewal = sessions.begin_renewal(KEY).unwrap();
        assert!(sessions.begin_renewal(KEY).is_none());
        drop(renewal);
        let renewal = sessions.begin_renewal(KEY).unwrap();
        assert_eq!(renewal.next_uri().unwrap(), "a");
        // The session was inherited again.
        sessions.inherit_subscriptions(KEY, vec!["b".into()]);
        let newer = sessions.begin_renewal(KEY).unwrap();
        assert_eq!(renewal.next_uri(), None);
        renewal.remove("b");
        drop(renewal);
        assert!(sessions.begin_renewal(KEY).is_none());
        assert_eq!(newer.next_uri().unwrap(), "b");
    }

    #[test]
    fn unsubscribed_resource_is_not_renewed() {
        let sessions = inherited(&["a", "b", "c"]);
        sessions.unsubscribe(&KEY, "a");
        let renewal = sessions.begin_renewal(KEY).unwrap();
        assert_eq!(renewal.next_uri().unwrap(), "b");
        sessions.unsubscribe(&KEY, "c");
        renewal.remove("b");
        assert_eq!(renewal.next_uri(), None);
        assert!(sessions.begin_renewal(KEY).is_none());
    }
}
