//! Subscriptions to single resources: one table for each upstream. All clients of one resource
//! share one subscription at the server.
//!
//! A table has a task as long as it has subscribers. Updates for a client wait in its
//! [`UpdateInbox`], a resource at most once: a slow reader costs one entry for each of its
//! resources, however often the server sends.

mod subscriber_name;
mod subscription_follower;
pub(crate) mod subscription_table;
pub(crate) mod update_inbox;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use weir_core::call::SessionKey;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::UpstreamId;
use weir_core::upstream::CallDeadlines;

use crate::Catalog;
use crate::session_lists::session_subscriptions::SessionSubscription;
use subscription_table::{ConsentReceiver, SubscriptionTable};

pub use subscription_table::ResourceSubscriber;
pub(super) use subscription_table::SubscriptionTables;
pub use update_inbox::{UpdateInbox, UpdateReader};

/// The wait of a client for the server's consent beyond the time of one request: for the stream to
/// open, and for the requests of other clients before.
const CONSENT_GRACE: Duration = Duration::from_secs(5);

/// A client's place in a table. Dropping it takes the client out; the last one out ends the
/// subscription at the server.
pub struct ResourceSubscription(SubscriptionHold);

enum SubscriptionHold {
    /// In the table of all clients of an upstream.
    Shared(SubscriptionEntry),
    /// In the client's own session.
    OfSession(SessionSubscription),
}

struct SubscriptionEntry {
    table: Arc<SubscriptionTable>,
    native: Arc<str>,
    nth: u64,
}

impl Catalog {
    /// Subscribes to updates of a resource that the principal sees, from the server's consent on.
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, refuses, or has no subscriptions.
    pub async fn subscribe(
        self: &Arc<Self>,
        subscriber: ResourceSubscriber,
        session: Option<&SessionKey>,
    ) -> Result<ResourceSubscription, Failure> {
        let upstream = subscriber.item.tool.upstream.clone();
        self.may_subscribe(&upstream)?;
        let late = || {
            Failure::new(
                FailureKind::TimedOut,
                "The server did not take the subscription in time",
            )
            .with_upstream(&upstream)
        };
        let server = self.upstream(&upstream);
        let time = server.map_or(CallDeadlines::LIST.hard, |server| server.own_request_time());
        let most = time + CONSENT_GRACE;
        if let Some(session) = session {
            let subscribing = self.subscribe_in_session(session, subscriber.clone());
            match timeout(most, subscribing).await {
                Ok(Some(subscribed)) => {
                    return subscribed.map(|subscription| {
                        ResourceSubscription(SubscriptionHold::OfSession(subscription))
                    });
                }
                // The client's session does not list it alone.
                Ok(None) => {}
                Err(_) => return Err(late()),
            }
        }
        let (subscription, consent) = self.add_subscriber(&upstream, subscriber)?;
        match consent {
            None => Ok(subscription),
            Some(consent) => match timeout(most, consent).await {
                Ok(Ok(consented)) => consented.map(|()| subscription),
                // The table's task is over before it was asked: the shutdown.
                Ok(Err(_)) | Err(_) => Err(late()),
            },
        }
    }

    fn may_subscribe(&self, upstream: &UpstreamId) -> Result<(), Failure> {
        let layout = self.layout.load();
        let about = layout
            .by_id
            .get(upstream)
            .and_then(|source| source.base().snapshot().about.clone());
        if about.is_none_or(|about| about.subscribes) {
            return Ok(());
        }
        Err(
            Failure::invalid_params("The server of this resource does not tell of its updates")
                .with_upstream(upstream),
        )
    }

    /// Adds a client to its table; a missing table is made and followed.
    fn add_subscriber(
        self: &Arc<Self>,
        upstream: &UpstreamId,
        subscriber: ResourceSubscriber,
    ) -> Result<(ResourceSubscription, ConsentReceiver), Failure> {
        if self.context.stop.is_cancelled() {
            return Err(Failure::new(
                FailureKind::Overloaded,
                "The service is shutting down",
            ));
        }
        let mut tables = self.subscription_tables.lock();
        let table = match tables.get(upstream) {
            Some(table) => table.clone(),
            None => {
                let table = Arc::new(SubscriptionTable::new(upstream.clone()));
                tables.insert(upstream.clone(), table.clone());
                let following = subscription_follower::run(
                    Arc::downgrade(self),
                    self.context.clone(),
                    self.subscription_tables.clone(),
                    table.clone(),
                );
                self.context.tasks.spawn(
                    self.context
                        .stop
                        .clone()
                        .run_until_cancelled_owned(following),
                );
                table
            }
        };
        let native = subscriber.item.tool.native.clone();
        let (nth, consent) = table.enter(subscriber);
        drop(tables);
        Ok((
            ResourceSubscription(SubscriptionHold::Shared(SubscriptionEntry {
                table,
                native,
                nth,
            })),
            consent,
        ))
    }
}

impl Drop for SubscriptionEntry {
    fn drop(&mut self) {
        self.table.leave(&self.native, self.nth);
    }
}

impl fmt::Debug for ResourceSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SubscriptionHold::Shared(entry) => write!(
                f,
                "Subscription({} of {})",
                entry.native, entry.table.upstream
            ),
            SubscriptionHold::OfSession(own) => own.fmt(f),
        }
    }
}
