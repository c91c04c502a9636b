//! Subscriptions to resources that only one session lists. They exist in that session alone.
//!
//! Requests to the server about one resource take turns: each begins after the one before has been
//! answered. So each subscriber knows if the server has consented, and no `unsubscribe` arrives
//! after the `subscribe` of a newer subscriber.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::UpstreamId;
use weir_core::port::ListSession;

/// Called for each update, with the server's own URI.
pub(crate) type UpdateCallback = Box<dyn Fn(&Arc<str>) + Send + Sync>;

/// The subscriptions in a session.
pub(super) struct SessionSubscriptions {
    upstream: UpstreamId,
    session: Weak<dyn ListSession>,
    /// The resources with a subscriber or a running request, by URI. The limits of clients'
    /// subscriptions bound them.
    resources: Mutex<HashMap<Arc<str>, Weak<SessionResource>>>,
    /// The number of the next subscriber.
    next: AtomicU64,
}

/// A resource of the session. Its subscribers, and the tasks that end its subscription, hold it; a
/// running request to subscribe holds the consent alone.
struct SessionResource {
    subscriptions: Weak<SessionSubscriptions>,
    uri: Arc<str>,
    subscribers: Mutex<Vec<(u64, UpdateCallback)>>,
    /// Locked during a request about the resource.
    consent: Arc<tokio::sync::Mutex<ServerConsent>>,
}

/// The server's consent to the subscription of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ServerConsent {
    /// The server has no subscription.
    #[default]
    Absent,
    /// The server was asked and has not consented. After a request without an answer it may have a
    /// subscription.
    Uncertain,
    /// The server has a subscription.
    Given,
}

/// A client's subscription in its session at a server. Dropping it ends it; the last one of a
/// resource ends it at the server, too.
pub struct SessionSubscription {
    resource: Arc<SessionResource>,
    nth: u64,
}

impl SessionSubscriptions {
    pub(super) fn new(upstream: UpstreamId, session: Weak<dyn ListSession>) -> Self {
        Self {
            upstream,
            session,
            resources: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// Passes on an update of a resource or of a part of it.
    pub(super) fn updated(&self, uri: &str) {
        let uri: Arc<str> = uri.into();
        let is_meant = |whole: &str| {
            let is_part = uri
                .strip_prefix(whole)
                .is_some_and(|rest| rest.starts_with(['/', '?', '#']) || whole.ends_with('/'));
            *uri == *whole || is_part
        };
        // Collected first: the drop of a resource takes the same lock.
        let meant: Vec<Arc<SessionResource>> = self
            .resources
            .lock()
            .iter()
            .filter(|(whole, _)| is_meant(whole))
            .filter_map(|(_, resource)| resource.upgrade())
            .collect();
        for resource in meant {
            let subscribers = resource.subscribers.lock();
            subscribers.iter().for_each(|(_, tell)| tell(&uri));
        }
    }

    /// The number of resources with a subscriber or a running request.
    #[cfg(test)]
    pub(super) fn resource_count(&self) -> usize {
        self.resources.lock().len()
    }

    /// Subscribes to a resource in this session. Cancel safe.
    ///
    /// # Errors
    /// The session is over, or the server refuses.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        uri: Arc<str>,
        tell: UpdateCallback,
    ) -> Result<SessionSubscription, Failure> {
        let over = || {
            Failure::new(
                FailureKind::Unavailable,
                "The server's session of this client is over: try again",
            )
            .with_upstream(&self.upstream)
        };
        let session = self.session.upgrade().ok_or_else(over)?;
        // An update may come together with the server's consent. After a refusal the drop removes
        // the subscriber.
        let subscription = self.add_subscriber(uri.clone(), tell);
        let mut consent = subscription.resource.consent.clone().lock_owned().await;
        if *consent == ServerConsent::Given {
            return Ok(subscription);
        }
        *consent = ServerConsent::Uncertain;
        let asking = session.clone().subscribe(uri);
        let (answer_sender, answer) = oneshot::channel();
        // The server may consent after the subscriber has gone, so the request goes on without it.
        session.spawn(Box::pin(async move {
            let answered = asking.await;
            if answered.is_ok() {
                *consent = ServerConsent::Given;
            }
            drop(consent);
            let _gone = answer_sender.send(answered);
        }));
        answer.await.unwrap_or_else(|_| Err(over()))?;
        Ok(subscription)
    }

    fn add_subscriber(
        self: &Arc<Self>,
        uri: Arc<str>,
        tell: UpdateCallback,
    ) -> SessionSubscription {
        let resource = {
            let mut resources = self.resources.lock();
            let known = resources.get(&uri).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let resource = Arc::new(SessionResource {
                    subscriptions: Arc::downgrade(self),
                    uri: uri.clone(),
                    subscribers: Mutex::default(),
                    consent: Arc::default(),
                });
                resources.insert(uri, Arc::downgrade(&resource));
                resource
            })
        };
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        resource.subscribers.lock().push((nth, tell));
        SessionSubscription { resource, nth }
    }
}

impl SessionResource {
    /// Ends the subscription at the server, unless the resource has a subscriber again.
    async fn end_unused(&self) {
        let mut consent = self.consent.lock().await;
        if *consent == ServerConsent::Absent || !self.subscribers.lock().is_empty() {
            return;
        }
        *consent = ServerConsent::Absent;
        if let Some(session) = self.session() {
            session.unsubscribe(self.uri.clone()).await;
        }
    }

    fn session(&self) -> Option<Arc<dyn ListSession>> {
        self.subscriptions.upgrade()?.session.upgrade()
    }
}

impl Drop for SessionResource {
    fn drop(&mut self) {
        let Some(subscriptions) = self.subscriptions.upgrade() else {
            return;
        };
        let mut resources = subscriptions.resources.lock();
        // A new subscriber may have put another one in its place.
        if resources
            .get(&self.uri)
            .is_some_and(|resource| resource.strong_count() == 0)
        {
            resources.remove(&self.uri);
        }
    }
}

impl Drop for SessionSubscription {
    fn drop(&mut self) {
        let is_last = {
            let mut subscribers = self.resource.subscribers.lock();
            subscribers.retain(|(nth, _)| *nth != self.nth);
            subscribers.is_empty()
        };
        if let Some(session) = self.resource.session().filter(|_| is_last) {
            let resource = self.resource.clone();
            session.spawn(Box::pin(async move { resource.end_unused().await }));
        }
    }
}

impl fmt::Debug for SessionSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionSubscription({})", self.resource.uri)
    }
}

#[cfg(test)]
mod tests;
