//! Subscriptions to resources that only one session lists. They exist in that session alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_core::failure::{Failure, FailureKind};
use weir_core::names::UpstreamId;
use weir_core::port::ListSession;

/// Called for each update, with the server's own URI.
pub(crate) type UpdateCallback = Box<dyn Fn(&Arc<str>) + Send + Sync>;

/// The subscriptions in a session, by URI. The limits of clients' subscriptions bound it.
pub(super) struct SessionSubscriptions {
    upstream: UpstreamId,
    session: Weak<dyn ListSession>,
    state: Mutex<SessionSubscriptionState>,
}

#[derive(Default)]
struct SessionSubscriptionState {
    by_uri: HashMap<Arc<str>, Vec<(u64, UpdateCallback)>>,
    next: u64,
}

/// A client's subscription in its session at a server. Dropping it ends it; the last one of a
/// resource ends it at the server, too.
pub struct SessionSubscription {
    subscriptions: Weak<SessionSubscriptions>,
    uri: Arc<str>,
    nth: u64,
}

impl SessionSubscriptions {
    pub(super) fn new(upstream: UpstreamId, session: Weak<dyn ListSession>) -> Self {
        Self {
            upstream,
            session,
            state: Mutex::default(),
        }
    }

    /// Passes on an update of a resource or of a part of it.
    pub(super) fn updated(&self, uri: &str) {
        let state = self.lock();
        let uri: Arc<str> = uri.into();
        for (whole, subscribers) in &state.by_uri {
            let is_part = uri
                .strip_prefix(&**whole)
                .is_some_and(|rest| rest.starts_with(['/', '?', '#']) || whole.ends_with('/'));
            if uri == *whole || is_part {
                subscribers.iter().for_each(|(_, tell)| tell(&uri));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionSubscriptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to a resource in this session.
    ///
    /// # Errors
    /// The session is over, or the server refuses.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        uri: Arc<str>,
        tell: UpdateCallback,
    ) -> Result<SessionSubscription, Failure> {
        let gone = || {
            Failure::new(
                FailureKind::Unavailable,
                "The server's session of this client is over: try again",
            )
        };
        let session = self
            .session
            .upgrade()
            .ok_or_else(|| gone().with_upstream(&self.upstream))?;
        let (nth, is_first) = {
            let mut state = self.lock();
            state.next += 1;
            let nth = state.next;
            let subscribers = state.by_uri.entry(uri.clone()).or_default();
            subscribers.push((nth, tell));
            (nth, subscribers.len() == 1)
        };
        // An update may come together with the server's consent. After a refusal the drop removes
        // the entry.
        let subscription = SessionSubscription {
            subscriptions: Arc::downgrade(self),
            uri: uri.clone(),
            nth,
        };
        if is_first {
            session.subscribe(uri).await?;
        }
        Ok(subscription)
    }
}

impl Drop for SessionSubscription {
    fn drop(&mut self) {
        let Some(subscriptions) = self.subscriptions.upgrade() else {
            return;
        };
        let is_last = {
            let mut state = subscriptions.lock();
            let Some(subscribers) = state.by_uri.get_mut(&self.uri) else {
                return;
            };
            subscribers.retain(|(nth, _)| *nth != self.nth);
            let is_last = subscribers.is_empty();
            if is_last {
                state.by_uri.remove(&self.uri);
            }
            is_last
        };
        if let Some(session) = subscriptions.session.upgrade().filter(|_| is_last) {
            session.unsubscribe(self.uri.clone());
        }
    }
}

impl fmt::Debug for SessionSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionSubscription({})", self.uri)
    }
}
