//! The task of a table: a subscription stream to the server, opened again when it is lost, for
//! exactly the resources that clients subscribed to.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, timeout};
use weir_core::failure::{Failure, FailureKind};
use weir_core::telemetry::instruments;
use weir_core::upstream::{ResourceUpdate, ResourceUpdates};

use crate::catalog::Catalog;
use crate::context::CatalogContext;
use crate::list_watcher::{OPEN_TIME, REOPEN_CALM, WALK_TIME, reopening_backoff};
use crate::resource_updates::subscription_table::{
    ResourceSubscriber, SubscriptionTable, SubscriptionTables,
};

/// Follows until the table has no subscribers, or the catalog is gone.
pub(super) async fn run(
    catalog: Weak<Catalog>,
    context: Arc<CatalogContext>,
    tables: Arc<SubscriptionTables>,
    table: Arc<SubscriptionTable>,
) {
    let follower = SubscriptionFollower {
        catalog,
        context,
        table,
    };
    let mut backoff = reopening_backoff();
    loop {
        let began = Instant::now();
        let failure = match follower.open().await {
            Ok(mut line) => match follower.follow(&mut *line).await {
                Ok(()) => {
                    drop(line);
                    if tables.remove_if_empty(&follower.table) {
                        return;
                    }
                    continue;
                }
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        if began.elapsed() >= REOPEN_CALM {
            backoff.reset();
        }
        follower.handle_loss(&failure);
        if tables.remove_if_empty(&follower.table) {
            return;
        }
        tokio::time::sleep(backoff.next(&*follower.context.ports.random)).await;
        if tables.remove_if_empty(&follower.table) {
            return;
        }
    }
}

struct SubscriptionFollower {
    catalog: Weak<Catalog>,
    context: Arc<CatalogContext>,
    table: Arc<SubscriptionTable>,
}

impl SubscriptionFollower {
    /// Opens a stream to the upstream as the config now has it.
    async fn open(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let gone = || {
            Failure::new(
                FailureKind::Unavailable,
                "The server of this resource is not served any more",
            )
        };
        let upstream = self
            .catalog
            .upgrade()
            .and_then(|catalog| catalog.upstream(&self.table.upstream));
        let upstream = upstream.ok_or_else(gone)?;
        let time = upstream.open_time(OPEN_TIME);
        let opening = upstream.updates();
        let late = || {
            Failure::new(
                FailureKind::TimedOut,
                "The server did not open a stream for resource updates in time",
            )
        };
        timeout(time, opening)
            .await
            .unwrap_or_else(|_| Err(late().with_upstream(&self.table.upstream)))
    }

    /// Sends the wanted subscriptions to the server, and its updates to the clients, until no
    /// resource is wanted. A resource that the server consented to before and refuses now is asked
    /// for again and again: a restarted server may not have it yet.
    async fn follow(&self, updates: &mut dyn ResourceUpdates) -> Result<(), Failure> {
        let mut backoff = reopening_backoff();
        let mut retry_at = None;
        loop {
            if self.table.is_empty() {
                // A server whose connection stays open must not go on sending. If it cannot be
                // reached, the end of the stream has the same effect.
                let ending = updates.set_subscriptions(&[], &|_| ());
                let _ended_in_time = timeout(OPEN_TIME, ending).await;
                return Ok(());
            }
            if let Some(wanted) = self.table.take_wanted() {
                let late = || {
                    Failure::new(
                        FailureKind::TimedOut,
                        "The server did not take the subscriptions in time",
                    )
                };
                // An upstream refuses the resources that its server hangs on after its own
                // deadline of lists, which is at most [`WALK_TIME`].
                let time = WALK_TIME + OPEN_TIME;
                // A server that is slow to subscribe to one resource delays no updates of others.
                let deliver = |updated: ResourceUpdate| self.deliver_update(&updated);
                let asking = timeout(time, updates.set_subscriptions(&wanted, &deliver));
                let refused = asking
                    .await
                    .unwrap_or_else(|_| Err(late().with_upstream(&self.table.upstream)))?;
                for subscriber in self.table.record_consent(&wanted, refused) {
                    self.notify(&subscriber, &subscriber.item.tool.native);
                }
                retry_at = self
                    .table
                    .is_interrupted()
                    .then(|| Instant::now() + backoff.next(&*self.context.ports.random));
                if retry_at.is_none() {
                    backoff.reset();
                }
            }
            let retry = async {
                match retry_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.table.wanted_changed.notified() => {}
                () = retry => self.table.send_again(),
                update = updates.next_update() => self.deliver_update(&update?),
            }
        }
    }

    /// Counts an update, and notifies its subscribers.
    fn deliver_update(&self, updated: &ResourceUpdate) {
        instruments().updates_in.add(1, &[self.table.label()]);
        match updated {
            ResourceUpdate::Resource(uri) => {
                for subscriber in self.table.subscribers_of(uri) {
                    self.notify(&subscriber, uri);
                }
            }
            ResourceUpdate::Any => {
                for subscriber in self.table.all() {
                    self.notify(&subscriber, &subscriber.item.tool.native);
                }
            }
        }
    }

    /// Notifies a subscriber of an updated resource, by the server's own URI.
    fn notify(&self, subscriber: &ResourceSubscriber, native: &Arc<str>) {
        let Some(catalog) = self.catalog.upgrade() else {
            return;
        };
        if let Some(exposed) = catalog.name_for_subscriber(subscriber, native) {
            subscriber.inbox.put(exposed, &subscriber.uri);
        }
    }

    fn handle_loss(&self, failure: &Failure) {
        tracing::debug!(upstream = %self.table.upstream, error = failure.cause(), "resource subscription stream lost");
        self.table.record_loss(failure);
    }
}
