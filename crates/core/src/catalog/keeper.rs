//! The background task that keeps views up to date. It builds them when a feed has a new snapshot,
//! sends held-back announcements when their time comes, and drops unused state.

use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::{Instant, sleep_until};

use super::Catalog;
use super::works::Works;
use crate::telemetry::instruments;

const TIDY: Duration = Duration::from_secs(30);

/// Runs until the catalog is gone, or until dropped.
pub(super) async fn run(catalog: Weak<Catalog>, works: Arc<Works>) {
    let mut tidy = Instant::now() + TIDY;
    let mut due = None;
    loop {
        tokio::select! {
            () = works.bell.notified() => {}
            () = sleep_until(due.map_or(tidy, |due: Instant| due.min(tidy))) => {}
        }
        let Some(catalog) = catalog.upgrade() else {
            return;
        };
        let now = Instant::now();
        due = catalog.renew(now);
        if now >= tidy {
            catalog.tidy();
            tidy = now + TIDY;
        }
    }
}

impl Catalog {
    /// Drops lists that no client has asked for in a long time, and counts the lists that no client
    /// read on.
    fn tidy(&self) {
        let layout = self.layout.load_full();
        let used: Vec<_> = layout
            .stands
            .values()
            .flat_map(|stand| stand.tidy(&self.works))
            .collect();
        layout.sources.iter().for_each(|source| source.keep(&used));
        for endpoint in self.outstanding.sweep(self.works.settings.abandoned_after) {
            instruments().cursors_abandoned.add(
                1,
                &[KeyValue::new("endpoint", endpoint.as_str().to_owned())],
            );
        }
    }
}
