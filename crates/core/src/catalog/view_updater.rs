//! The background task that keeps views up to date. It builds them when a feed has a new snapshot,
//! sends held-back announcements when their time comes, and drops unused state.

use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::{Instant, sleep_until};

use super::Catalog;
use super::context::CatalogContext;
use crate::telemetry::instruments;

const TIDY_INTERVAL: Duration = Duration::from_secs(30);

/// Runs until the catalog is gone, or until dropped.
pub(super) async fn run(catalog: Weak<Catalog>, works: Arc<CatalogContext>) {
    let mut tidy = Instant::now() + TIDY_INTERVAL;
    let mut due = None;
    loop {
        tokio::select! {
            () = works.rebuild.notified() => {}
            () = sleep_until(due.map_or(tidy, |due: Instant| due.min(tidy))) => {}
        }
        let Some(catalog) = catalog.upgrade() else {
            return;
        };
        let now = Instant::now();
        due = catalog.renew(now);
        if now >= tidy {
            catalog.drop_unused();
            tidy = now + TIDY_INTERVAL;
        }
    }
}

impl Catalog {
    /// Drops lists that no client has asked for in a long time, and counts the lists that no client
    /// read on.
    fn drop_unused(&self) {
        let layout = self.layout.load_full();
        let used: Vec<_> = layout
            .endpoint_lists
            .values()
            .flat_map(|stand| stand.drop_unused(&self.context))
            .collect();
        layout.sources.iter().for_each(|source| source.keep(&used));
        for endpoint in self
            .outstanding_cursors
            .sweep(self.context.settings.abandoned_after)
        {
            instruments().cursors_abandoned.add(
                1,
                &[KeyValue::new("endpoint", endpoint.as_str().to_owned())],
            );
        }
    }
}
