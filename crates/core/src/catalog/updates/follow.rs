//! The task of a table: a subscription stream to the server, opened again when it is lost, for
//! exactly the resources that clients subscribed to.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, timeout};

use super::table::Table;
use super::{Subscriber, Tables};
use crate::catalog::Catalog;
use crate::catalog::pace::Backoff;
use crate::catalog::works::Works;
use crate::failure::{Failure, FailureKind};
use crate::telemetry::instruments;
use crate::upstream::{Updated, Updates};

/// Follows until the table has no subscribers, or the catalog is gone.
pub(super) async fn run(
    catalog: Weak<Catalog>,
    works: Arc<Works>,
    tables: Arc<Tables>,
    table: Arc<Table>,
) {
    let follower = Follower {
        catalog,
        works,
        table,
    };
    let settings = &follower.works.settings;
    let mut backoff = Backoff::new(settings.reopen_first, settings.reopen_most);
    let mut missed = false;
    loop {
        let began = Instant::now();
        let failure = match follower.open().await {
            Ok(mut line) => match follower.follow(&mut *line, missed).await {
                Ok(()) => {
                    drop(line);
                    if tables.close(&follower.table) {
                        return;
                    }
                    continue;
                }
                Err(failure) => {
                    missed = true;
                    failure
                }
            },
            Err(failure) => failure,
        };
        if began.elapsed() >= settings.reopen_calm {
            backoff.reset();
        }
        follower.lost(&failure);
        if tables.close(&follower.table) {
            return;
        }
        tokio::time::sleep(backoff.next(&*follower.works.ports.random)).await;
        if tables.close(&follower.table) {
            return;
        }
    }
}

struct Follower {
    catalog: Weak<Catalog>,
    works: Arc<Works>,
    table: Arc<Table>,
}

impl Follower {
    /// Opens a stream to the upstream as the config now has it.
    async fn open(&self) -> Result<Box<dyn Updates>, Failure> {
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
        let time = upstream.open_time(self.works.settings.open_time);
        let opening = upstream.updates();
        let late = || {
            Failure::new(
                FailureKind::TimedOut,
                "The server did not open a line for updates in time",
            )
        };
        timeout(time, opening)
            .await
            .unwrap_or_else(|_| Err(late().at(&self.table.upstream)))
    }

    /// Sends the wanted subscriptions to the server, and its updates to the clients, until no
    /// resource is wanted.
    async fn follow(&self, line: &mut dyn Updates, mut missed: bool) -> Result<(), Failure> {
        loop {
            if self.table.is_empty() {
                // A server whose connection stays open must not go on sending. If it cannot be
                // reached, the end of the stream has the same effect.
                let _told = timeout(self.works.settings.open_time, line.want(&[])).await;
                return Ok(());
            }
            if let Some(wanted) = self.table.changed() {
                let late = || {
                    Failure::new(
                        FailureKind::TimedOut,
                        "The server did not take the subscriptions in time",
                    )
                };
                let asking = timeout(self.works.settings.open_time, line.want(&wanted));
                let refused = asking
                    .await
                    .unwrap_or_else(|_| Err(late().at(&self.table.upstream)))?;
                self.table.settle(&wanted, refused);
                // Updates may have been missed while there was no stream.
                if std::mem::take(&mut missed) {
                    self.tell(&Updated::Any);
                }
            }
            tokio::select! {
                () = self.table.bell.notified() => {}
                told = line.updated() => {
                    instruments().updates_in.add(1, &[self.table.label()]);
                    self.tell(&told?);
                }
            }
        }
    }

    fn tell(&self, updated: &Updated) {
        let Some(catalog) = self.catalog.upgrade() else {
            return;
        };
        let subscribers = match updated {
            Updated::One(uri) => self.table.told(uri),
            Updated::Any => self.table.all(),
        };
        for subscriber in subscribers {
            let native = match updated {
                Updated::One(uri) => uri,
                Updated::Any => &subscriber.item.tool.native,
            };
            if let Some(exposed) = catalog.told_as(&subscriber, native) {
                let Subscriber { inbox, item, .. } = &subscriber;
                inbox.put(exposed, &item.exposed);
            }
        }
    }

    fn lost(&self, failure: &Failure) {
        tracing::debug!(upstream = %self.table.upstream, error = failure.cause(), "no line for updates of resources");
        self.table.lost(failure);
    }
}
